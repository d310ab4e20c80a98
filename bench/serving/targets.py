"""What is called: one call of one caller, at twinlens or at infinity."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from bench.serving.figures import OK, REFUSED
from bench.serving.photo_bytes import distinct, poisoned, read_photos
from bench.serving.queries import query
from twinlens.v1 import embedding_pb2, embedding_pb2_grpc, search_pb2, search_pb2_grpc

COLLECTION = "bench"
TOP_K = 10
_MESSAGE_BYTES = 64 << 20
_POISON_EVERY = 10
# A picture can be refused for what it is, which is an answer; the name of that outcome.
BAD_PICTURE = "refused picture"


class Target(Protocol):
    """Something that answers calls."""

    async def call(self, number: int, connection: int, timeout_s: float) -> str:
        """Makes one call and returns its outcome.

        Args:
            number: Of the call; its content is made of it, so no two calls bring the same.
            connection: Over which of the connections.
            timeout_s: When to give up.
        """
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...


class Twinlens:
    """The stubs, without the client around them: no retries, so that every refusal is seen.

    Args:
        address: HOST:PORT.
        work: `image`, `text`, `search`, `poisoned` (pictures, of which every tenth is none) or `mixed`.
        photos: Folder of pictures.
        connections: How many.
    """

    def __init__(self, address: str, work: str, photos: Path | None, connections: int) -> None:
        options = [
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),  # else all of them would be one connection
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(connections)]
        self._embedding = [embedding_pb2_grpc.EmbeddingServiceStub(channel) for channel in self._channels]
        self._search = [search_pb2_grpc.SearchServiceStub(channel) for channel in self._channels]
        self._photos = read_photos(photos) if photos is not None else []
        self._work = work

    async def call(self, number: int, connection: int, timeout_s: float) -> str:
        """See `Target`."""
        work = self._work
        if work == "mixed":
            work = ("image", "text", "search", "poisoned")[number % 4]
        try:
            if work == "search":
                return await self._find(number, connection, timeout_s)
            return await self._embed(self._input(work, number), connection, timeout_s)
        except grpc.aio.AioRpcError as error:
            return REFUSED if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else error.code().name

    async def close(self) -> None:
        """See `Target`."""
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def _input(self, work: str, number: int) -> embedding_pb2.EmbedInput:
        if work == "text":
            return embedding_pb2.EmbedInput(text=query(number))
        photo = self._photos[number % len(self._photos)]
        poison = work == "poisoned" and number % _POISON_EVERY == _POISON_EVERY - 1
        return embedding_pb2.EmbedInput(
            image=poisoned(photo, number // _POISON_EVERY) if poison else distinct(photo, number)
        )

    async def _embed(self, entry: embedding_pb2.EmbedInput, connection: int, timeout_s: float) -> str:
        request = embedding_pb2.EmbedRequest(inputs=[entry])
        reply = await self._embedding[connection].Embed(request, timeout=timeout_s)
        (result,) = reply.results
        return OK if result.HasField("embedding") else BAD_PICTURE

    async def _find(self, number: int, connection: int, timeout_s: float) -> str:
        part = search_pb2.QueryPart(text=query(number))
        request = search_pb2.SearchRequest(collection=COLLECTION, queries=[search_pb2.Query(parts=[part])], top_k=TOP_K)
        reply = await self._search[connection].Search(request, timeout=timeout_s)
        (result,) = reply.results
        return OK if len(result.hits) == TOP_K else f"{len(result.hits)} hits"


class Infinity:
    """Its HTTP interface, by as little HTTP as will do: one connection a caller, kept open, vectors in base64.

    Args:
        address: HOST:PORT.
        work: `image` or `text`.
        photos: Folder of pictures.
        connections: How many.
        model: The name it serves the model by.
    """

    def __init__(self, address: str, work: str, photos: Path | None, connections: int, model: str) -> None:
        host, _, port = address.rpartition(":")
        self._connections = [_HttpConnection(host, int(port)) for _ in range(connections)]
        self._photos = read_photos(photos) if photos is not None else []
        self._work = work
        self._model = model

    async def call(self, number: int, connection: int, timeout_s: float) -> str:
        """See `Target`."""
        body: dict[str, Any] = {"model": self._model, "encoding_format": "base64", "modality": self._work}
        if self._work == "image":
            photo = distinct(self._photos[number % len(self._photos)], number)
            body["input"] = ["data:image/jpeg;base64," + base64.b64encode(photo).decode("ascii")]
        else:
            body["input"] = [query(number)]
        try:
            async with asyncio.timeout(timeout_s):
                status, answer = await self._connections[connection].post("/embeddings", json.dumps(body).encode())
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            return type(error).__name__
        if status != 200:
            return f"HTTP {status}"
        return OK if json.loads(answer)["data"][0]["embedding"] else "no vector"

    async def close(self) -> None:
        """See `Target`."""
        for connection in self._connections:
            connection.close()


class _HttpConnection:
    """One connection for one call at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body)
            await writer.drain()
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            length = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:"))
            return int(lines[0].split()[1]), await reader.readexactly(length)
        except BaseException:
            self.close()  # what comes next on it would be the rest of this answer
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def open_target(spec: dict[str, Any], connections: int) -> Target:
    """The target that a generator's order names."""
    photos = Path(spec["photos"]) if spec.get("photos") else None
    made: dict[str, Callable[[], Target]] = {
        "twinlens": lambda: Twinlens(spec["address"], spec["work"], photos, connections),
        "infinity": lambda: Infinity(spec["address"], spec["work"], photos, connections, spec["model"]),
    }
    return made[spec["target"]]()
