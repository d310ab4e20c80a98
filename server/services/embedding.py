"""EmbeddingService."""

from __future__ import annotations

from twinlens.server.core.app import Application
from twinlens.server.core.call import current_call
from twinlens.server.core.engine import Input, Outcome, Picture, Text
from twinlens.server.core.errors import ItemFailure, Reason, invalid_argument
from twinlens.server.services import convert
from twinlens.server.services.interceptor import Context
from twinlens.v1 import content_pb2, embedding_pb2, embedding_pb2_grpc

MAX_INPUTS = 1024
_EMPTY = Outcome(failure=ItemFailure(Reason.INVALID_INPUT, "the input is empty: set image or text"))


class EmbeddingService(embedding_pb2_grpc.EmbeddingServiceServicer):
    """Turns pictures and texts into vectors."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def Embed(  # noqa: N802 - the wire's name
        self, request: embedding_pb2.EmbedRequest, context: Context
    ) -> embedding_pb2.EmbedResponse:
        """Embeds a batch; one bad input fails alone."""
        del context
        if not 1 <= len(request.inputs) <= MAX_INPUTS:
            raise invalid_argument(f"a request has 1 to {MAX_INPUTS} inputs, not {len(request.inputs)}")
        inputs = [_input(entry) for entry in request.inputs]
        call = current_call()
        outcomes = iter(await self._app.embed([entry for entry in inputs if entry is not None], call))

        def reply() -> embedding_pb2.EmbedResponse:
            return embedding_pb2.EmbedResponse(
                model=convert.model_info(self._app.engine.manifest),
                results=[_result(_EMPTY if entry is None else next(outcomes)) for entry in inputs],
            )

        # Up to a million floats: not on the event loop.
        return await self._app.io.submit(call.priority, reply)


def _input(entry: embedding_pb2.EmbedInput) -> Input | None:
    match entry.WhichOneof("content"):
        case "image":
            return Picture(entry.image)
        case "text":
            return Text(entry.text)
        case _:
            return None


def _result(outcome: Outcome) -> embedding_pb2.EmbedResult:
    if outcome.vector is None:
        failure = outcome.failure or ItemFailure(Reason.INTERNAL, "no vector")
        return embedding_pb2.EmbedResult(error=convert.item_error(failure))
    return embedding_pb2.EmbedResult(
        embedding=content_pb2.Vector(values=outcome.vector.tolist()), truncated=outcome.truncated
    )
