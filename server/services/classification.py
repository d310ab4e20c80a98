"""ClassificationService."""

from __future__ import annotations

from collections.abc import Sequence

from twinlens.server.core.app import Application
from twinlens.server.core.call import Call, current_call
from twinlens.server.core.classify import Labelled
from twinlens.server.core.errors import ItemFailure, Reason, invalid_argument
from twinlens.server.services import convert, example_set
from twinlens.server.services.interceptor import Context
from twinlens.v1 import classification_pb2, classification_pb2_grpc

MAX_IMAGES = 1024


class ClassificationService(classification_pb2_grpc.ClassificationServiceServicer):
    """Labels pictures by text alone, or by examples."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def Classify(  # noqa: N802 - the wire's name
        self, request: classification_pb2.ClassifyRequest, context: Context
    ) -> classification_pb2.ClassifyResponse:
        """Scores pictures against labels; one bad picture fails alone."""
        del context
        if not 1 <= len(request.images) <= MAX_IMAGES:
            raise invalid_argument(f"a request has 1 to {MAX_IMAGES} images, not {len(request.images)}")
        if request.top_k < 0:
            raise invalid_argument(f"top_k must not be negative; it is {request.top_k}")
        if request.HasField("examples"):
            return await self._by_examples(request, current_call())
        call, labels = current_call(), list(request.labels)
        results = await self._app.classifier.classify(
            request.images,
            labels,
            list(request.templates),
            top_k=request.top_k,
            multi_label=request.multi_label,
            call=call,
        )
        return await self._reply(results, labels, call)

    async def _by_examples(
        self, request: classification_pb2.ClassifyRequest, call: Call
    ) -> classification_pb2.ClassifyResponse:
        given = request.examples
        if request.labels:
            raise invalid_argument("give labels or examples, not both: examples bring their labels")
        if request.multi_label:
            raise invalid_argument("multi_label is for labels in words; by examples, judge each label by its cosine")
        example_set.check(given)
        scoring = example_set.scoring(given)
        collection = await self._app.collection(given.collection, call) if given.collection else None
        source = await self._app.io.submit(call.priority, example_set.source, given, collection)
        results, examples = await self._app.example_classifier.classify(
            request.images,
            source,
            scoring,
            templates=list(request.templates),
            top_k=request.top_k,
            call=call,
        )
        return await self._reply(results, examples.labels, call, example_set.report(examples))

    async def _reply(
        self,
        results: Sequence[Labelled],
        labels: Sequence[str],
        call: Call,
        report: classification_pb2.ExampleReport | None = None,
    ) -> classification_pb2.ClassifyResponse:
        def reply() -> classification_pb2.ClassifyResponse:
            return classification_pb2.ClassifyResponse(
                model=convert.model_info(self._app.engine.manifest),
                results=[_result(entry, labels) for entry in results],
                examples=report,
            )

        # Up to a million scores: not on the event loop.
        return await self._app.io.submit(call.priority, reply)


def _result(labelled: Labelled, labels: Sequence[str]) -> classification_pb2.ClassifyResult:
    columns = (labelled.labels, labelled.cosines, labelled.probabilities, labelled.truncated)
    if any(column is None for column in columns):
        failure = labelled.failure or ItemFailure(Reason.INTERNAL, "no scores")
        return classification_pb2.ClassifyResult(error=convert.item_error(failure))
    rows = zip(*(column.tolist() for column in columns if column is not None), strict=True)
    return classification_pb2.ClassifyResult(
        scores=[
            classification_pb2.LabelScore(
                label=labels[position], cosine=cosine, probability=probability, truncated=truncated
            )
            for position, cosine, probability, truncated in rows
        ]
    )
