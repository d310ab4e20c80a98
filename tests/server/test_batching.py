from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.server.running import Running, embed_request, picture, run_server
from tests.server.watched import WatchedEncoder, until
from twinlens.v1 import collection_pb2, content_pb2, embedding_pb2


@pytest.fixture
def encoder() -> WatchedEncoder:
    return WatchedEncoder()


@pytest_asyncio.fixture
async def served(data: Path, encoder: WatchedEncoder) -> AsyncIterator[Running]:
    async with run_server(data, encoder, max_batch=8, max_items_in_flight=17, max_delay_ms=0) as running:
        yield running


def dropped(served: Running, why: str) -> float:
    labels = {"stage": "tower", "why": why}
    return served.app.telemetry.registry.get_sample_value("twinlens_dropped_items_total", labels) or 0.0


async def test_calls_that_arrive_while_a_batch_runs_share_the_next_one(
    served: Running, encoder: WatchedEncoder
) -> None:
    encoder.hold()
    first = asyncio.ensure_future(served.embed("first"))
    await encoder.entered()
    rest = [asyncio.ensure_future(served.embed(f"caller {i}")) for i in range(6)]
    await until(lambda: len(served.app.engine.texts) == 6)
    encoder.release()
    replies = await asyncio.gather(first, *rest)
    assert encoder.text_batches == [1, 6]
    assert all(reply.results[0].WhichOneof("outcome") == "embedding" for reply in replies)


async def test_no_batch_is_larger_than_allowed(served: Running, encoder: WatchedEncoder) -> None:
    encoder.hold()
    encoder.release()
    await served.embed(*(picture("red", size) for size in range(8, 28)))
    assert sum(encoder.image_batches) == 20
    assert max(encoder.image_batches) <= 8


async def test_an_idle_server_runs_a_lone_item_at_once(data: Path, encoder: WatchedEncoder) -> None:
    async with run_server(data, encoder, max_delay_ms=1000.0) as served:
        loop = asyncio.get_running_loop()
        encoder.hold()
        encoder.release()
        served.app.engine.texts._last_end_s = loop.time() - 2.0
        served.app.engine.texts._last_size = 8
        reply = await asyncio.wait_for(served.embed("alone"), timeout=20)
        assert reply.results[0].WhichOneof("outcome") == "embedding"
        assert encoder.text_batches == [1]


async def test_a_cancelled_call_is_dropped_before_it_runs(served: Running, encoder: WatchedEncoder) -> None:
    encoder.hold()
    first = asyncio.ensure_future(served.embed("first"))
    await encoder.entered()
    gone = served.embedding.Embed(embed_request("gone", "too"))
    await until(lambda: len(served.app.engine.texts) == 2)
    gone.cancel()
    await until(lambda: served.app.admission.items == 1)
    encoder.release()
    await first
    await until(lambda: dropped(served, "cancelled") == 2)
    assert encoder.text_batches == [1]


async def test_an_expired_call_is_dropped_before_it_runs(served: Running, encoder: WatchedEncoder) -> None:
    encoder.hold()
    first = asyncio.ensure_future(served.embed("first"))
    await encoder.entered()
    late = served.embedding.Embed(embed_request("late"), timeout=1.0)
    await until(lambda: len(served.app.engine.texts) == 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await late
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: served.app.admission.items == 1)
    encoder.release()
    await first
    await until(lambda: dropped(served, "cancelled") + dropped(served, "expired") == 1)
    assert encoder.text_batches == [1]


async def test_a_full_server_refuses_at_once_and_recovers(served: Running, encoder: WatchedEncoder) -> None:
    encoder.hold()
    accepted = asyncio.ensure_future(served.embed(*(f"text {i}" for i in range(16))))
    await encoder.entered()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.embed("one", "two")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) > 0
    encoder.release()
    assert len((await accepted).results) == 16
    assert len((await served.embed("one", "two")).results) == 2


async def test_a_queue_that_stands_is_cut_and_who_is_refused_learns_when_to_come_back(
    data: Path, encoder: WatchedEncoder
) -> None:
    async with run_server(data, encoder, max_delay_ms=0) as served:
        encoder.hold()
        calls: list[asyncio.Future[embedding_pb2.EmbedResponse]] = []
        while not any(call.done() for call in calls):
            calls.append(asyncio.ensure_future(served.embed(f"text {len(calls)}")))
            await asyncio.sleep(0.001)
        # Pictures have a bound of their own.
        picture_call = asyncio.ensure_future(served.embed(picture("red")))
        await until(lambda: len(served.app.engine.images) == 1)
        encoder.release()
        await picture_call
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [error for error in answers if isinstance(error, grpc.aio.AioRpcError)]
        assert len(answers) - len(refused) >= 80  # as many as keep the towers in full batches
        for error in refused:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) > 0
        assert (await served.embed("later")).results[0].WhichOneof("outcome") == "embedding"


async def test_a_poisonous_item_fails_alone(served: Running, encoder: WatchedEncoder) -> None:
    encoder.poison = {encoder.prepare_text("poison").ids}
    encoder.hold()
    first = asyncio.ensure_future(served.embed("first"))
    await encoder.entered()
    calls = [asyncio.ensure_future(served.embed(text)) for text in ("red", "poison", "blue")]
    await until(lambda: len(served.app.engine.texts) == 3)
    encoder.release()
    red, poisoned, blue = await asyncio.gather(*calls)
    await first
    assert encoder.text_batches == [1, 3, 1, 1, 1]
    assert poisoned.results[0].error.reason == content_pb2.ERROR_REASON_INTERNAL
    assert "secret" not in poisoned.results[0].error.message
    assert red == await served.embed("red")
    assert blue == await served.embed("blue")


async def test_a_broken_encoder_is_reported_without_its_words_and_the_server_lives_on(
    served: Running, encoder: WatchedEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    encoder.broken = RuntimeError("secret /path/of/the/server")
    request = embed_request("red", picture("red"))
    reply = await served.embedding.Embed(request, metadata=(("x-request-id", "trace-me"),))
    for result in reply.results:
        assert result.error.reason == content_pb2.ERROR_REASON_INTERNAL
        assert "secret" not in result.error.message
        assert "trace-me" in result.error.message
    assert "secret" in caplog.text
    assert "trace-me" in caplog.text
    encoder.broken = None
    assert (await served.embed("red")).results[0].WhichOneof("outcome") == "embedding"


async def test_searching_overtakes_bulk_writing(served: Running, encoder: WatchedEncoder) -> None:
    await served.create()
    encoder.hold()
    items = [collection_pb2.NewItem(id=str(i), caption=f"caption {i}") for i in range(32)]
    writing = asyncio.ensure_future(served.upsert(*items))
    await encoder.entered()
    await until(lambda: len(served.app.engine.texts) == 24)
    asked = asyncio.ensure_future(served.embed("urgent"))
    await until(lambda: len(served.app.engine.texts) == 25)
    encoder.release()
    await asyncio.gather(asked, writing)
    assert encoder.text_batches[:2] == [8, 1]
    assert (await writing).stored_count == 32


async def test_a_small_call_overtakes_a_large_one(served: Running, encoder: WatchedEncoder) -> None:
    encoder.hold()
    large = asyncio.ensure_future(served.embed(*(f"text {i}" for i in range(16))))
    await encoder.entered()
    await until(lambda: len(served.app.engine.texts) == 8)
    small = asyncio.ensure_future(served.embed("small"))
    await until(lambda: len(served.app.engine.texts) == 9)
    encoder.release()
    await asyncio.gather(large, small)
    assert encoder.text_batches == [8, 1, 8]


async def test_a_full_server_stays_healthy(served: Running, encoder: WatchedEncoder) -> None:
    encoder.hold()
    calls = [asyncio.ensure_future(served.embed("first"))]
    await encoder.entered()
    calls += [asyncio.ensure_future(served.embed(f"text {i}")) for i in range(16)]
    await until(lambda: len(served.app.engine.texts) == 16)
    canary = asyncio.ensure_future(served.server.health.check())
    await until(lambda: len(served.app.engine.texts) == 17)
    encoder.release()
    assert await canary
    await asyncio.gather(*calls)
    assert encoder.text_batches[:2] == [1, 1]


async def test_a_message_over_the_limit_is_refused_and_the_server_lives_on(data: Path) -> None:
    async with run_server(data, WatchedEncoder(), max_message_bytes=2**20) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.embed(b"x" * 2**21)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await served.embed("red")).results[0].WhichOneof("outcome") == "embedding"
