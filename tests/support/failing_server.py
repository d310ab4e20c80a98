"""A server that answers each call as it is told to, and notes what came."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from twinlens.v1 import (
    collection_operations_pb2,
    collection_operations_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    content_pb2,
    embedding_pb2,
    embedding_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a call ends: a status, its text, and the metadata that comes with it."""

    status: grpc.StatusCode
    details: str = "told to"
    trailing: tuple[tuple[str, str | bytes], ...] = ()


def retry_info(seconds: float, status: grpc.StatusCode = grpc.StatusCode.RESOURCE_EXHAUSTED) -> Refusal:
    """A refusal that says when to come back, as google.rpc.RetryInfo."""
    hint = error_details_pb2.RetryInfo()
    hint.retry_delay.FromNanoseconds(round(seconds * 1e9))
    packed = AnyMessage()
    packed.Pack(hint)
    rich = status_pb2.Status(code=status.value[0], message="told to", details=[packed])
    return Refusal(status, trailing=(("grpc-status-details-bin", rich.SerializeToString()),))


class FailingServer(
    embedding_pb2_grpc.EmbeddingServiceServicer,
    collection_pb2_grpc.CollectionServiceServicer,
    collection_operations_pb2_grpc.CollectionOperationsServiceServicer,
    model_pb2_grpc.ModelServiceServicer,
):
    """Refuses each call by the next of `refusals`, and answers well when they are used up.

    Attributes:
        refusals: What is still to be refused.
        calls: How many calls there were.
        peers: From which connections.
        metadata: What came with the last call.
        messages_first: How many messages of a streamed answer come before it fails.
        breaks: After how many answers each call of EmbedStream breaks off; those left go through.
        broke: Set when one did.
        streamed: The texts that each call of EmbedStream was sent, as far as they were read.
        limits: What it tells of its limits; None: it does not offer to.
        asked: How often it was asked for them.
    """

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.calls = 0
        self.peers: set[str] = set()
        self.metadata: dict[str, str | bytes] = {}
        self.messages_first = 0
        self.breaks: list[int] = []
        self.broke = threading.Event()
        self.streamed: list[list[str]] = []
        self.limits: model_pb2.ServerLimits | None = None
        self.asked = 0

    def _note(self, context: Any) -> None:
        self.calls += 1
        self.peers.add(context.peer())
        self.metadata = dict(context.invocation_metadata())

    def _refuse(self, context: Any) -> None:
        if self.refusals:
            refusal = self.refusals.pop(0)
            context.set_trailing_metadata(refusal.trailing)
            context.abort(refusal.status, refusal.details)

    def Embed(self, request: embedding_pb2.EmbedRequest, context: Any) -> embedding_pb2.EmbedResponse:  # noqa: N802
        self._note(context)
        self._refuse(context)
        vector = content_pb2.Vector(values=[1.0])
        results = [embedding_pb2.EmbedResult(embedding=vector) for _ in request.inputs]
        return embedding_pb2.EmbedResponse(model=content_pb2.ModelInfo(dimension=1), results=results)

    def EmbedStream(self, request_iterator: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """The vector of a text is its length; a call that breaks off has read one message that it does not answer."""
        self._note(context)
        left = self.breaks.pop(0) if self.breaks else -1
        self.streamed.append([])
        for request in request_iterator:
            self.streamed[-1] += [each.text for each in request.inputs]
            if not left:
                self.broke.set()
                context.abort(grpc.StatusCode.UNAVAILABLE, "broke off")
            left -= 1
            results = [
                embedding_pb2.EmbedResult(embedding=content_pb2.Vector(values=[len(each.text)]))
                for each in request.inputs
            ]
            yield embedding_pb2.EmbedStreamResponse(model=content_pb2.ModelInfo(dimension=1), results=results)

    def UpsertItems(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        stored = sum(len(message.items) for message in request_iterator)
        self._note(context)
        self._refuse(context)
        return collection_pb2.UpsertItemsResponse(stored_count=stored)

    def CheckCollection(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        del request
        self._note(context)
        for number in range(self.messages_first):
            finding = collection_operations_pb2.Finding(message=f"finding {number}")
            yield collection_operations_pb2.CheckCollectionResponse(finding=finding)
        self._refuse(context)

    def GetModel(self, request: model_pb2.GetModelRequest, context: Any) -> model_pb2.GetModelResponse:  # noqa: N802
        del request
        self.asked += 1
        if self.limits is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        return model_pb2.GetModelResponse(limits=self.limits)


def failing_server() -> FailingServer:
    """One without refusals."""
    return FailingServer()  # type: ignore[abstract]  # the stubs' generator marks what is not written as abstract


@contextmanager
def serving(
    servicer: FailingServer,
    address: str,
    credentials: grpc.ServerCredentials | None = None,
    options: Sequence[tuple[str, int]] = (),
) -> Iterator[int]:
    """Serves at an address until the block ends, and gives the port."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        server = grpc.server(pool, options=options or [("grpc.max_receive_message_length", 64 * 2**20)])
        embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(servicer, server)
        collection_pb2_grpc.add_CollectionServiceServicer_to_server(servicer, server)
        collection_operations_pb2_grpc.add_CollectionOperationsServiceServicer_to_server(servicer, server)
        model_pb2_grpc.add_ModelServiceServicer_to_server(servicer, server)
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
        server.start()
        yield port
        server.stop(None).wait()
