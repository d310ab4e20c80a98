"""After a run of everything that goes wrong, the log holds request ids and nothing of what was sent."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.server.access.secured import bearer, secured, token_in
from tests.server.running import picture
from tests.server.watched import WatchedEncoder
from tests.support.raw_host import answer, raw_host
from twinlens.v1 import (
    classification_pb2,
    classification_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    content_pb2,
    embedding_pb2,
    embedding_pb2_grpc,
    search_pb2,
    search_pb2_grpc,
)

MARK = "zebra4711"
BAD_PICTURE = b"\x89PNG\r\n\x1a\n" + MARK.encode() * 50
NUMBER = 4711.0815


def input_of(**content: Any) -> embedding_pb2.EmbedInput:
    return embedding_pb2.EmbedInput(**content)


async def test_the_log_of_a_hostile_run_holds_no_token_text_picture_vector_or_query_of_an_address(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = tmp_path / "tokens.toml"
    token = token_in(tokens, "search", "write")
    encoder = WatchedEncoder()
    encoder.poison.add(encoder.prepare_text(f"poison {MARK}").ids)
    async with (
        raw_host({f"/a?sig={MARK}": answer(BAD_PICTURE), f"/b?sig={MARK}": answer(b"", "500 No")}) as host,
        secured(
            data, encoder, tokens=tokens, fetch_hosts=(f"images.example.com:{host.port}",), fetch_http=True
        ) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        server.app.fetcher._permits = anything
        server.app.fetcher._lookup = loopback
        url = f"http://images.example.com:{host.port}"
        wrong = content_pb2.Vector(values=[NUMBER] * 3)
        embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
        collections = collection_pb2_grpc.CollectionServiceStub(channel)
        search = search_pb2_grpc.SearchServiceStub(channel).Search
        classify = classification_pb2_grpc.ClassificationServiceStub(channel).Classify
        raw: Any = channel.unary_unary("/twinlens.v1.EmbeddingService/Embed")
        create = collection_pb2.CreateCollectionRequest(collection="photos")
        await collections.CreateCollection(create, metadata=bearer(token))
        inputs = [
            input_of(image=BAD_PICTURE),
            input_of(image=MARK.encode()),
            input_of(image=picture("red")),
            input_of(text=f"poison {MARK}"),
            input_of(text=f"{MARK}\x00"),
            input_of(text=f"{MARK} " * 100),
            input_of(image_url=f"{url}/a?sig={MARK}"),
            input_of(image_url=f"{url}/b?sig={MARK}"),
            input_of(image_url=f"https://user:{MARK}@elsewhere.test/?sig={MARK}"),
        ]
        items = [
            collection_pb2.NewItem(id="a", image=BAD_PICTURE, caption=MARK),
            collection_pb2.NewItem(id="b", caption=f"poison {MARK}"),
            collection_pb2.NewItem(id="c", image_vector=wrong),
        ]
        queries = [
            search_pb2.Query(parts=[search_pb2.QueryPart(**part)])
            for part in (
                {"text": f"poison {MARK}"},
                {"vector": wrong},
                {"image": BAD_PICTURE},
            )
        ]
        calls: list[Any] = [
            embed(embedding_pb2.EmbedRequest(inputs=inputs), metadata=bearer(token)),
            raw(b"\xff" + MARK.encode(), metadata=bearer(token)),
            raw(MARK.encode(), metadata=bearer(f"twl_{MARK}_{'0' * 64}")),
            raw(MARK.encode(), metadata=(("authorization", f"Basic {MARK}"),)),
            collections.UpsertItems(
                iter([collection_pb2.UpsertItemsRequest(collection="photos", items=items, space_id=space_of(encoder))]),
                metadata=bearer(token),
            ),
            search(search_pb2.SearchRequest(collection="photos", queries=queries, top_k=1), metadata=bearer(token)),
            search(
                search_pb2.SearchRequest(collection="photos", queries=queries, top_k=1, filter=f'tag = "{MARK}" AND'),
                metadata=bearer(token),
            ),
            classify(
                classification_pb2.ClassifyRequest(images=[BAD_PICTURE], labels=["a"], templates=[MARK]),
                metadata=bearer(token),
            ),
            classify(
                classification_pb2.ClassifyRequest(images=[BAD_PICTURE], labels=[MARK, MARK]), metadata=bearer(token)
            ),
        ]
        told: dict[int, grpc.aio.AioRpcError] = {}
        for number, call in enumerate(calls):
            try:
                await call
            except grpc.aio.AioRpcError as error:
                told[number] = error
    for number, failed in told.items():
        assert "secret /path" not in (failed.details() or "")
        assert dict(failed.trailing_metadata())["x-request-id"] in caplog.text, number
    said = "\n".join(map(logging.Formatter().format, caplog.records))
    assert "refused" in said
    for secret in (MARK, token, token.rpartition("_")[2], str(NUMBER), "PNG\\r"):
        lines = [line for line in said.splitlines() if secret in line]
        assert not lines, lines


def anything(_: object) -> bool:
    return True


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def space_of(encoder: WatchedEncoder) -> str:
    return encoder.manifest.space_id
