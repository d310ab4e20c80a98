"""Pictures named by their address, in every request that takes one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Running, picture, run_server
from tests.server.watched import WatchedEncoder, until
from tests.support.fake_encoder import FakeEncoder
from tests.support.raw_host import RawHost, answer, raw_host
from twinlens.server.core import backlog
from twinlens.v1 import classification_pb2, collection_pb2, content_pb2, embedding_pb2, search_pb2

NOT_FETCHED = content_pb2.ERROR_REASON_NOT_FETCHED
INVALID_IMAGE = content_pb2.ERROR_REASON_INVALID_IMAGE


def _anything(_: object) -> bool:
    return True


async def _loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def fetching(
    data: Path, answers: dict[str, Any], encoder: FakeEncoder | None = None, **settings: Any
) -> AsyncIterator[tuple[Running, RawHost]]:
    async with raw_host(answers) as host:
        hosts = (f"images.example.com:{host.port}",)
        async with run_server(data, encoder or FakeEncoder(), fetch_hosts=hosts, fetch_http=True, **settings) as served:
            served.app.fetcher._permits = _anything
            served.app.fetcher._lookup = _loopback
            yield served, host


@pytest.fixture
def answers() -> dict[str, Any]:
    return {f"/{colour}.png": answer(picture(colour)) for colour in ("red", "green", "blue")} | {
        "/page.html": answer(b"<html>", "200 OK", "Content-Type: image/png")
    }


def at(host: RawHost, path: str) -> str:
    return f"http://images.example.com:{host.port}{path}"


async def test_an_address_gives_the_vector_of_the_picture_there_and_a_bad_one_fails_alone(
    data: Path, answers: dict[str, Any]
) -> None:
    async with fetching(data, answers) as (served, host):
        inputs = [
            embedding_pb2.EmbedInput(image_url=at(host, "/red.png")),
            embedding_pb2.EmbedInput(text="green"),
            embedding_pb2.EmbedInput(image_url=at(host, "/missing.png")),
            embedding_pb2.EmbedInput(image_url=at(host, "/page.html")),
            embedding_pb2.EmbedInput(image_url="https://elsewhere.test/a.png"),
            embedding_pb2.EmbedInput(image=picture("blue")),
            embedding_pb2.EmbedInput(image_url=at(host, "/blue.png")),
        ]
        results = (await served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=inputs))).results
        sent = (await served.embed(picture("red"), "green", picture("blue"))).results
        assert results[0].embedding == sent[0].embedding
        assert results[1].embedding == sent[1].embedding
        assert results[5].embedding == results[6].embedding == sent[2].embedding
        assert [results[i].error.reason for i in (2, 3, 4)] == [NOT_FETCHED, INVALID_IMAGE, NOT_FETCHED]
        assert results[2].error.message == "images.example.com answered with status 404"
        assert "fetch_hosts" in results[4].error.message


async def test_without_a_list_of_hosts_every_address_fails_alone(served: Running) -> None:
    inputs = [embedding_pb2.EmbedInput(image_url="https://a.example/a.png"), embedding_pb2.EmbedInput(text="red")]
    results = (await served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=inputs))).results
    assert results[0].error.reason == NOT_FETCHED
    assert results[1].WhichOneof("outcome") == "embedding"


async def test_a_query_may_be_an_address(data: Path, answers: dict[str, Any]) -> None:
    async with fetching(data, answers) as (served, host):
        await served.fill_with_colours()
        reply = await served.find(search_pb2.QueryPart(image_url=at(host, "/red.png")))
        assert reply.results[0].hits[0].item.id == "red"
        mixed = await served.find(
            search_pb2.QueryPart(image_url=at(host, "/red.png"), weight=0.1), search_pb2.QueryPart(text="blue")
        )
        assert mixed.results[0].hits[0].item.id == "blue"
        failed = await served.find(search_pb2.QueryPart(image_url=at(host, "/missing.png")))
        assert failed.results[0].error.reason == NOT_FETCHED


async def test_pictures_to_label_may_be_addresses_and_come_after_those_sent(
    data: Path, answers: dict[str, Any]
) -> None:
    async with fetching(data, answers) as (served, host):
        request = classification_pb2.ClassifyRequest(
            images=[picture("green")],
            image_urls=[at(host, "/red.png"), at(host, "/missing.png"), at(host, "/blue.png")],
            labels=["red", "green", "blue"],
        )
        results = (await served.classification.Classify(request)).results
        assert [result.scores[0].label for result in results if result.scores] == ["green", "red", "blue"]
        assert results[2].error.reason == NOT_FETCHED
        only = classification_pb2.ClassifyRequest(image_urls=[at(host, "/red.png")], labels=["red", "blue"])
        assert (await served.classification.Classify(only)).results[0].scores[0].label == "red"


async def test_streams_take_addresses_too(data: Path, answers: dict[str, Any]) -> None:
    async with fetching(data, answers) as (served, host):
        inputs = [embedding_pb2.EmbedInput(image_url=at(host, f"/{name}.png")) for name in ("red", "missing", "blue")]
        messages = [embedding_pb2.EmbedStreamRequest(inputs=[each]) for each in inputs]
        replies: Any = served.embedding.EmbedStream(iter(messages))
        outcomes = [result.WhichOneof("outcome") async for reply in replies for result in reply.results]
        assert outcomes == ["embedding", "error", "embedding"]
        setup = classification_pb2.ClassifyRequest(labels=["red", "green", "blue"], top_k=1)
        urls = [at(host, "/blue.png"), at(host, "/missing.png")]
        stream: Any = served.classification.ClassifyStream(
            iter(
                [
                    classification_pb2.ClassifyStreamRequest(setup=setup),
                    classification_pb2.ClassifyStreamRequest(images=[picture("red")], image_urls=urls),
                ]
            )
        )
        results = [result async for reply in stream for result in reply.results]
        assert [score.label for result in results for score in result.scores] == ["red", "blue"]
        assert results[2].error.reason == NOT_FETCHED


async def test_an_item_may_be_an_address_whose_picture_is_kept(data: Path, answers: dict[str, Any]) -> None:
    async with fetching(data, answers) as (served, host):
        await served.create()
        report = await served.upsert(
            collection_pb2.NewItem(id="r", image_url=at(host, "/red.png"), caption="red"),
            collection_pb2.NewItem(id="missing", image_url=at(host, "/missing.png")),
            collection_pb2.NewItem(id="both", image_url=at(host, "/red.png"), image=picture("red")),
            collection_pb2.NewItem(id="c", caption="green"),
            collection_pb2.NewItem(id="r", image_url=at(host, "/blue.png")),
        )
        assert report.stored_count == 3
        assert {failure.id: failure.error.reason for failure in report.failures} == {
            "missing": NOT_FETCHED,
            "both": content_pb2.ERROR_REASON_INVALID_INPUT,
        }
        get = collection_pb2.GetItemRequest(collection="photos", id="r", include_image=True)
        kept = await served.collections.GetItem(get)
        assert kept.image == picture("blue")  # of two items of one id the later one stays
        assert kept.item.caption == ""


async def test_many_addresses_are_fetched_a_few_at_a_time(data: Path) -> None:
    gate = asyncio.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer(picture("red")))
        await writer.drain()

    async with fetching(data, {"/held": held}, max_fetches=4) as (served, host):
        inputs = [embedding_pb2.EmbedInput(image_url=at(host, "/held"))] * 100
        running = asyncio.ensure_future(served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=inputs)))
        await until(lambda: host.open == 4)
        assert (await served.embed("red")).results[0].WhichOneof("outcome") == "embedding"
        gate.set()
        results = (await running).results
        assert {result.WhichOneof("outcome") for result in results} == {"embedding"}
        assert host.most <= 4


async def test_a_host_that_hangs_keeps_out_nobody_who_sends_his_pictures(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "_BURST_S", 0.0)

    async def hanging(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with fetching(data, {"/slow": hanging}) as (served, host):
        slow = embedding_pb2.EmbedRequest(inputs=[embedding_pb2.EmbedInput(image_url=at(host, "/slow"))])
        calls = [served.embedding.Embed(slow) for _ in range(200)]
        await until(lambda: served.app.admission.items == len(calls))
        assert len((await served.embed(picture("red"))).results) == 1
        labels = classification_pb2.ClassifyRequest(images=[picture("red")], labels=["red", "blue"])
        assert len((await served.classification.Classify(labels)).results) == 1
        for call in calls:
            call.cancel()
        await until(lambda: served.app.admission.items == 0)


async def test_a_fetched_picture_keeps_its_place_until_it_is_embedded(data: Path, answers: dict[str, Any]) -> None:
    encoder = WatchedEncoder()
    async with fetching(data, answers, encoder, max_fetches=2) as (served, host):
        encoder.hold()
        inputs = [embedding_pb2.EmbedInput(image_url=at(host, "/red.png"))] * 6
        running = asyncio.ensure_future(served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=inputs)))
        await encoder.entered()
        await until(lambda: len(host.asked) == 2)
        await served.collections.ListCollections(collection_pb2.ListCollectionsRequest())
        assert len(host.asked) == 2
        encoder.release()
        assert len((await running).results) == 6


async def test_a_caller_who_hangs_up_ends_what_is_fetched_for_him(data: Path) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with fetching(data, {"/slow": silent}) as (served, host):
        inputs = [embedding_pb2.EmbedInput(image_url=at(host, "/slow"))] * 3
        call = served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=inputs))
        waiting = asyncio.ensure_future(_ended(call))
        await until(lambda: host.open == 3)
        call.cancel()
        await until(lambda: host.open == 0)
        await waiting


async def _ended(call: Any) -> None:
    await asyncio.wait([asyncio.ensure_future(call)])
