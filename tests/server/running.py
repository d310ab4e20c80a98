"""Starting a server for a test, with stubs to call it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from PIL import Image

from tests.support.pictures import COLOURS
from twinlens.encoders.protocol import EncoderLike
from twinlens.server.core.active import open_data
from twinlens.server.core.app import Application
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.settings import Settings
from twinlens.server.spans import Spans
from twinlens.v1 import (
    classification_pb2_grpc,
    collection_operations_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    embedding_pb2,
    embedding_pb2_grpc,
    model_pb2_grpc,
    search_pb2,
    search_pb2_grpc,
)

# The canary flies once at the start and then not again, so that tests count only their own batches.
# Nor is an encoder that a test holds taken for a stuck one.
QUIET = {"canary_interval_s": 3600.0, "port": 0, "stuck_s": 60.0}


class Running:
    """A server that runs, and its stubs."""

    def __init__(self, server: GrpcServer, app: Application, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.app = app
        self.channel = channel
        self.embedding = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        self.search = search_pb2_grpc.SearchServiceStub(channel)
        self.classification = classification_pb2_grpc.ClassificationServiceStub(channel)
        self.collections = collection_pb2_grpc.CollectionServiceStub(channel)
        self.operations = collection_operations_pb2_grpc.CollectionOperationsServiceStub(channel)
        self.models = model_pb2_grpc.ModelServiceStub(channel)

    async def embed(self, *entries: bytes | str) -> embedding_pb2.EmbedResponse:
        return await self.embedding.Embed(embed_request(*entries))

    async def create(self, collection: str = "photos") -> None:
        await self.collections.CreateCollection(collection_pb2.CreateCollectionRequest(collection=collection))

    async def upsert(
        self, *items: collection_pb2.NewItem, collection: str = "photos"
    ) -> collection_pb2.UpsertItemsResponse:
        request = collection_pb2.UpsertItemsRequest(collection=collection, items=items)
        return await self.collections.UpsertItems(iter([request]))

    async def find(self, *parts: search_pb2.QueryPart, **options: Any) -> search_pb2.SearchResponse:
        options = {"collection": "photos", "top_k": 3, **options}
        return await self.search.Search(search_pb2.SearchRequest(queries=[search_pb2.Query(parts=parts)], **options))

    async def fill_with_colours(self) -> None:
        await self.create()
        report = await self.upsert(
            *(collection_pb2.NewItem(id=name, image=picture(name), caption=f"a {name} square") for name in COLOURS)
        )
        assert report.stored_count == len(COLOURS)


@asynccontextmanager
async def run_server(
    data: Path,
    encoder: EncoderLike,
    *,
    spans: Spans | None = None,
    reopen: Callable[[], EncoderLike] | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    chosen = Settings(**{**QUIET, **settings})
    loaded, catalog = open_data(data, None, chosen, encoder)
    app = Application(loaded, catalog, chosen, data, reopen=reopen)
    server = GrpcServer(app, "127.0.0.1:0", spans=spans)
    try:
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            yield Running(server, app, channel)
    finally:
        await server.stop(0)


def picture(colour: str, size: int = 16) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), COLOURS[colour]).save(buffer, format="PNG")
    return buffer.getvalue()


def embed_request(*entries: bytes | str) -> embedding_pb2.EmbedRequest:
    return embedding_pb2.EmbedRequest(inputs=list(_inputs(entries)))


def _inputs(entries: Iterable[bytes | str]) -> Iterable[embedding_pb2.EmbedInput]:
    for entry in entries:
        yield (
            embedding_pb2.EmbedInput(text=entry) if isinstance(entry, str) else embedding_pb2.EmbedInput(image=entry)
        )


async def end_of(stream: Any) -> None:
    async for _ in stream:
        pass


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await (end_of(call) if hasattr(call, "__aiter__") else call)
    return refused.value.code(), refused.value.details() or ""
