"""ClassificationService."""

from __future__ import annotations

from collections.abc import Sequence

from twinlens.server.core.app import Application
from twinlens.server.core.call import current_call
from twinlens.server.core.classify import Labelled
from twinlens.server.core.errors import ItemFailure, Reason, invalid_argument
from twinlens.server.services import convert
from twinlens.server.services.interceptor import Context
from twinlens.v1 import classification_pb2, classification_pb2_grpc

MAX_IMAGES = 1024


class ClassificationService(classification_pb2_grpc.ClassificationServiceServicer):
    """Labels pictures by text alone."""

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
        call, labels = current_call(), list(request.labels)
        results = await self._app.classifier.classify(
            request.images,
            labels,
            list(request.templates),
            top_k=request.top_k,
            multi_label=request.multi_label,
            call=call,
        )

        def reply() -> classification_pb2.ClassifyResponse:
            return classification_pb2.ClassifyResponse(
                model=convert.model_info(self._app.engine.manifest),
                results=[_result(entry, labels) for entry in results],
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
