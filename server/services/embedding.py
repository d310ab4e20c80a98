"""EmbeddingService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from twinlens.server.core.app import Application
from twinlens.server.core.call import Call, current_call
from twinlens.server.core.engine import Input, Outcome, Text
from twinlens.server.core.errors import ItemFailure, Reason, invalid_argument
from twinlens.server.core.item_vectors import ItemOf
from twinlens.server.core.lanes import Priority
from twinlens.server.core.lookup import StoredItem
from twinlens.server.core.message_streams import Placed, placed, weight
from twinlens.server.core.towers import refuse_if_unsupported
from twinlens.server.services import convert
from twinlens.server.services.interceptor import Context
from twinlens.server.services.reply_making import made
from twinlens.v1 import content_pb2, embedding_pb2, embedding_pb2_grpc

MAX_INPUTS = 1024
_EMPTY = Outcome(failure=ItemFailure(Reason.INVALID_INPUT, "the input is empty: set image, text, image_url or item"))


class EmbeddingService(embedding_pb2_grpc.EmbeddingServiceServicer):
    """Turns pictures and texts into vectors."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def Embed(  # noqa: N802 - the wire's name, as below
        self, request: embedding_pb2.EmbedRequest, context: Context
    ) -> embedding_pb2.EmbedResponse:
        """Embeds a batch; one bad input fails alone."""
        del context
        call = current_call()
        entries = _entries(request.inputs, "request")
        outcomes = await self._outcomes(entries, self._app.embed, call)
        refuse_if_unsupported(
            [outcome.failure for entry, outcome in zip(entries, outcomes, strict=True) if entry is not None]
        )

        def reply() -> embedding_pb2.EmbedResponse:
            return embedding_pb2.EmbedResponse(
                model=convert.model_info(self._app.engine.manifest), results=[_result(each) for each in outcomes]
            )

        return await made(reply, len(outcomes) * self._app.engine.dimension, self._app.io, call)

    async def EmbedStream(  # noqa: N802
        self, request_iterator: AsyncIterator[embedding_pb2.EmbedStreamRequest], context: Context
    ) -> AsyncGenerator[embedding_pb2.EmbedStreamResponse, None]:
        """Embeds any number of inputs, at bulk priority; one bad input fails alone."""
        del context
        app, call = self._app, replace(current_call(), priority=Priority.BULK)
        model = convert.model_info(app.engine.manifest)

        async def answer(placed: Placed[embedding_pb2.EmbedStreamRequest]) -> embedding_pb2.EmbedStreamResponse:
            outcomes = await self._outcomes(_entries(placed.message.inputs, "message"), app.engine.embed, call)
            return await app.io.submit(call.priority, reply, placed.position, outcomes)

        def weigh(placed: Placed[embedding_pb2.EmbedStreamRequest]) -> int:
            return weight(placed.message, placed.count)

        def reply(position: int, outcomes: Sequence[Outcome]) -> embedding_pb2.EmbedStreamResponse:
            return embedding_pb2.EmbedStreamResponse(
                model=model, first_position=position, results=[_result(each) for each in outcomes]
            )

        messages = placed(request_iterator, lambda request: len(request.inputs))
        async with aclosing(app.streams.answers(messages, answer, weigh)) as answers:
            async for each in answers:
                yield each

    async def _outcomes(
        self,
        entries: Sequence[Input | ItemOf | None],
        embed: Callable[[Sequence[Input], Call], Awaitable[list[Outcome]]],
        call: Call,
    ) -> list[Outcome]:
        """What becomes of each entry: what is stored is looked up, the rest embedded."""
        others = [entry for entry in entries if entry is not None and not isinstance(entry, ItemOf)]
        if len(others) == len(entries):
            return await embed(others, call)
        stored = [entry for entry in entries if isinstance(entry, ItemOf)]
        found = iter(await self._app.item_vectors.look_up(stored, call))
        embedded = iter(await embed(others, call))
        return [
            _EMPTY if entry is None else next(found) if isinstance(entry, ItemOf) else next(embedded)
            for entry in entries
        ]


def _entries(inputs: Sequence[embedding_pb2.EmbedInput], what: str) -> list[Input | ItemOf | None]:
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise invalid_argument(f"a {what} has 1 to {MAX_INPUTS} inputs, not {len(inputs)}")
    return [_entry(each) for each in inputs]


def _entry(wire: embedding_pb2.EmbedInput) -> Input | ItemOf | None:
    match wire.WhichOneof("content"):
        case "image" | "image_url":
            return convert.picture(wire.image, wire.image_url)
        case "text":
            return Text(wire.text)
        case "item":
            return ItemOf(wire.item.collection, StoredItem(wire.item.id, convert.modality_or_none(wire.item.modality)))
        case _:
            return None


def _result(outcome: Outcome) -> embedding_pb2.EmbedResult:
    if outcome.vector is None:
        failure = outcome.failure or ItemFailure(Reason.INTERNAL, "no vector")
        return embedding_pb2.EmbedResult(error=convert.item_error(failure))
    return embedding_pb2.EmbedResult(
        embedding=content_pb2.Vector(values=outcome.vector.tolist()), truncated=outcome.truncated
    )
