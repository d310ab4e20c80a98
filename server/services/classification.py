"""ClassificationService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from twinlens.server.core.call import Call, current_call
from twinlens.server.core.classify import Words
from twinlens.server.core.engine import Input, Outcome
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.examples import ExampleVectors
from twinlens.server.core.label_scorer import LabelScorer
from twinlens.server.core.lanes import Priority
from twinlens.server.core.message_streams import Placed, placed, weight
from twinlens.server.services import convert, example_set, label_messages
from twinlens.server.services.interceptor import Context
from twinlens.server.services.label_choice import label_choice
from twinlens.server.services.label_set_methods import LabelSetMethods
from twinlens.v1 import classification_pb2 as pb

MAX_IMAGES = 1024


class ClassificationService(LabelSetMethods):
    """Labels pictures by text alone, or by examples."""

    async def Classify(self, request: pb.ClassifyRequest, context: Context) -> pb.ClassifyResponse:  # noqa: N802 - the wire's name
        """Scores pictures against labels; one bad picture fails alone."""
        del context
        call, pictures = current_call(), _pictures(request)
        choice = await label_choice(self._app, request, call)
        report = None
        if isinstance(choice, Words):
            outcomes, scorer = await self._app.classifier.classify(pictures, choice, top_k=request.top_k, call=call)
        else:
            outcomes, scorer, examples = await self._app.example_classifier.classify(
                pictures, choice, top_k=request.top_k, call=call
            )
            report = example_set.report(examples)

        def reply() -> pb.ClassifyResponse:
            return pb.ClassifyResponse(
                model=convert.model_info(self._app.engine.manifest), results=_results(scorer, outcomes), examples=report
            )

        # Up to a million scores: not on the event loop.
        return await self._app.io.submit(call.priority, reply)

    async def ClassifyStream(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ClassifyStreamRequest], context: Context
    ) -> AsyncGenerator[pb.ClassifyStreamResponse, None]:
        """Scores any number of pictures against the labels of the first message, at bulk priority."""
        del context
        app, call = self._app, replace(current_call(), priority=Priority.BULK)
        first = await app.streams.first(request_iterator)
        if first is None or not first.HasField("setup"):
            raise invalid_argument("the first message of a stream has the setup: what to choose from")
        if first.images or first.image_urls or first.setup.images or first.setup.image_urls:
            raise invalid_argument("the first message has no pictures: they follow in messages of their own")
        async with app.streams.place(weight(first, len(first.setup.examples.examples))):
            scorer, examples = await self._scorer(first.setup, call)
        del first  # it may hold pictures of examples
        model = convert.model_info(app.engine.manifest)
        yield pb.ClassifyStreamResponse(
            model=model, examples=None if examples is None else example_set.report(examples)
        )

        async def answer(placed: Placed[pb.ClassifyStreamRequest]) -> pb.ClassifyStreamResponse:
            request = placed.message
            if request.HasField("setup"):
                raise invalid_argument("only the first message of a stream has the setup")
            pictures = _pictures(request)
            scorer.room.check(len(pictures))
            outcomes = await app.engine.embed(pictures, call)
            return await app.io.submit(call.priority, reply, placed.position, outcomes)

        def weigh(placed: Placed[pb.ClassifyStreamRequest]) -> int:
            return weight(placed.message, placed.count)

        def reply(position: int, outcomes: Sequence[Outcome]) -> pb.ClassifyStreamResponse:
            return pb.ClassifyStreamResponse(model=model, first_position=position, results=_results(scorer, outcomes))

        messages = placed(request_iterator, lambda request: len(request.images) + len(request.image_urls))
        async with aclosing(app.streams.answers(messages, answer, weigh)) as answers:
            async for each in answers:
                yield each

    async def _scorer(self, setup: pb.ClassifyRequest, call: Call) -> tuple[LabelScorer, ExampleVectors | None]:
        choice = await label_choice(self._app, setup, call)
        if isinstance(choice, Words):
            return await self._app.classifier.scorer(choice, top_k=setup.top_k, call=call), None
        return await self._app.example_classifier.scorer(choice, top_k=setup.top_k, call=call)


def _pictures(request: pb.ClassifyRequest | pb.ClassifyStreamRequest) -> Sequence[Input]:
    count = len(request.images) + len(request.image_urls)
    if not 1 <= count <= MAX_IMAGES:
        what = "request" if isinstance(request, pb.ClassifyRequest) else "message"
        raise invalid_argument(f"a {what} has 1 to {MAX_IMAGES} images, not {count}")
    return convert.pictures(request.images, request.image_urls)


def _results(scorer: LabelScorer, outcomes: Sequence[Outcome]) -> list[pb.ClassifyResult]:
    return [label_messages.result(labelled, scorer.labels) for labelled in scorer.score(outcomes)]
