from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray

from tests.server.running import Running, refusal, run_server
from tests.server.watched import PATIENCE_S, WatchedEncoder, nothing_dropped, until
from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.tokenise import TokenisedText
from twinlens.index.collection import Collection
from twinlens.server.core import supervision
from twinlens.server.core.active import StartError, open_data
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Text
from twinlens.server.core.errors import ServiceError
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.supervision import LOOK_EVERY_S, Supervisor, patience_with
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.health import Health
from twinlens.server.serve import _reopener
from twinlens.server.settings import Settings
from twinlens.v1 import collection_pb2, search_pb2

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SHORT: dict[str, Any] = {"stuck_s": 0.3, "canary_interval_s": 3600.0}


@asynccontextmanager
async def watching(served: Running) -> AsyncIterator[Any]:
    stub = health_pb2_grpc.HealthStub(served.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == SERVING
    yield watch
    watch.cancel()


async def turns(watch: Any, *statuses: int) -> None:
    for status in statuses:
        assert (await asyncio.wait_for(watch.read(), PATIENCE_S)).status == status


def replaced(served: Running, pool: str) -> float:
    return served.app.telemetry.registry.get_sample_value("twinlens_workers_replaced_total", {"pool": pool}) or 0.0


def test_a_stuck_worker_is_noticed_within_five_seconds() -> None:
    # Until the first look at it, until it is stuck, and until the look that sees it.
    assert LOOK_EVERY_S + Settings().stuck_s + LOOK_EVERY_S <= 5.0


async def test_a_stuck_tower_turns_health_red_until_it_and_its_sessions_are_replaced(data: Path) -> None:
    encoder, fresh = WatchedEncoder(), WatchedEncoder()
    async with run_server(data, encoder, reopen=lambda: fresh, **SHORT) as served, watching(served) as watch:
        encoder.hold()
        code, message = await refusal(served.embed("stuck"))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "try again" in message
        await turns(watch, NOT_SERVING, SERVING)
        assert served.app.engine.encoder is fresh
        assert (await served.embed("again")).results[0].WhichOneof("outcome") == "embedding"
        assert fresh.text_batches
        assert replaced(served, "towers") == 1
        encoder.release()


async def test_a_canary_that_flew_while_something_broke_says_nothing_of_what_is_there_now(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_server(data, FakeEncoder()) as served:
        health = Health(served.app, ())
        breaks = [True, False, False]

        async def flown(*_: object) -> None:
            if breaks.pop(0):
                health._on_trouble()

        monkeypatch.setattr("twinlens.server.health.fly", flown)
        assert [await health.check() for _ in range(3)] == [False, False, True]


async def test_a_canary_that_broke_something_itself_is_not_followed_by_another_at_once(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_server(data, FakeEncoder()) as served:
        health, flights = Health(served.app, ()), []

        async def flown(*_: object) -> None:
            flights.append(1)
            await asyncio.sleep(0)
            health._on_trouble()
            raise RuntimeError

        monkeypatch.setattr("twinlens.server.health.fly", flown)
        health._on_trouble()
        watching = asyncio.create_task(health._watch())
        await until(lambda: bool(flights))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(flights) == 1
        watching.cancel()


async def test_a_canary_waits_for_the_batches_of_a_slow_model(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_server(data, FakeEncoder(), max_batch=16, canary_timeout_s=10.0) as served:
        waited: list[float] = []

        async def flown(app: object, picture: bytes, timeout_s: float) -> None:
            waited.append(timeout_s)

        monkeypatch.setattr("twinlens.server.health.fly", flown)
        for unit_s in (0.0, 0.01, 2.0, 600.0):
            monkeypatch.setattr(WorkerPool, "unit_s", unit_s)
            await Health(served.app, ()).check()
        assert waited == [10.0, 10.0, 96.0, 120.0]


async def test_everyone_whose_item_was_in_the_stuck_batch_is_told_at_once(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, **SHORT) as served:
        encoder.hold()
        calls = [asyncio.ensure_future(served.embed("first"))]
        await encoder.entered()
        encoder.text_batches.clear()
        calls += [asyncio.ensure_future(served.embed(f"text {i}")) for i in range(3)]
        await until(lambda: len(served.app.engine.texts) == 3)
        codes = [(await refusal(call))[0] for call in calls]
        assert codes == [grpc.StatusCode.UNAVAILABLE] * 4
        assert encoder.text_batches.count(3) == 1
        retried = served.app.telemetry.registry.get_sample_value("twinlens_retried_batches_total", {"tower": "text"})
        assert retried == 0  # not one by one: each might hang
        encoder.release()


class Leaving(WatchedEncoder):
    """Its next batch of texts, or the next picture it prepares, ends the thread it runs on."""

    leaves_in = ""

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        self._leave("tower")
        return super().encode_texts(tokens)

    def prepare_image(self, data: bytes) -> NDArray[np.float32]:
        self._leave("prepare")
        return super().prepare_image(data)

    def _leave(self, where: str) -> None:
        if self.leaves_in == where:
            self.leaves_in = ""
            raise SystemExit


class Ending(WatchedEncoder):
    """Every batch of texts ends the thread it ran on."""

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        super().encode_texts(tokens)
        raise SystemExit


async def test_a_worker_that_ends_leaves_no_failure_of_which_nobody_is_told() -> None:
    encoder = Ending()
    engine = Engine(encoder, max_batch=4, max_delay_s=0.0, prepare_threads=1)
    with nothing_dropped():
        encoder.hold()
        texts: list[Input] = [Text("one"), Text("two")]
        calls = [asyncio.create_task(engine.embed(texts, Call())) for _ in range(3)]  # the last one waits
        await encoder.entered()
        calls[0].cancel()
        encoder.release()
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, ServiceError | asyncio.CancelledError) for each in told] == [True] * 3
        del told, calls
        await engine.close()


@pytest.mark.parametrize(("where", "pool"), [("tower", "towers"), ("prepare", "prepare")])
async def test_a_worker_that_ends_turns_health_red_and_is_replaced(where: str, pool: str, data: Path) -> None:
    encoder = Leaving()
    async with run_server(data, encoder, **SHORT) as served, watching(served) as watch:
        encoder.leaves_in = where
        call = served.embed("words") if where == "tower" else served.embed(b"a picture, as far as it comes")
        assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
        await turns(watch, NOT_SERVING, SERVING)
        assert (await served.embed("again")).results[0].WhichOneof("outcome") == "embedding"
        assert replaced(served, pool) == 1


async def test_reading_that_hangs_turns_health_red_and_searches_go_on(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, io_threads=2, **SHORT) as served, watching(served) as watch:
        await served.fill_with_colours()
        disk = WatchedEncoder()  # of which only the waiting is used
        disk.hold()

        def read(_: str) -> int:
            disk.encode_texts([])
            return 0

        collection = served.app.catalog.get("photos")
        with monkeypatch.context() as patched:
            patched.setattr(collection, "count", read)
            counts = [asyncio.ensure_future(count(served)) for _ in range(2)]
            for _ in counts:
                await disk.entered()
        await turns(watch, NOT_SERVING, SERVING)
        assert await count(served) == 8
        disk.release()
        assert await asyncio.gather(*counts) == [0, 0]  # what the disk gave at last was not lost
        assert replaced(served, "io") == 2


async def count(served: Running) -> int:
    reply = await served.collections.CountItems(collection_pb2.CountItemsRequest(collection="photos"))
    return int(reply.count)


async def test_a_process_that_was_stopped_takes_none_of_its_workers_for_stuck(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        troubles: list[bool] = []
        supervisor = Supervisor(served.app.pools, 1.0, Telemetry(), lambda: troubles.append(True))
        encoder.hold()
        call = asyncio.ensure_future(served.embed("running"))
        await encoder.entered()
        for now_s in (0.0, 0.25, 3600.0, 3600.25, 7200.0, 7200.25):
            supervisor.look(now_s)
        assert not troubles
        assert supervisor.pauses == 2
        for quarter in range(8):
            supervisor.look(7200.5 + quarter / 4)
        assert troubles
        await refusal(call)
        encoder.release()


async def test_a_canary_that_stood_still_with_the_process_flies_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_server(data, FakeEncoder()) as served:
        flights = iter([TimeoutError, None, TimeoutError])
        health = served.server.health

        async def flight(*_: object) -> None:
            if (error := next(flights)) is not None:
                raise error

        monkeypatch.setattr("twinlens.server.health.fly", flight)
        monkeypatch.setattr(health._supervisor, "pauses", 0)
        monkeypatch.setattr(health._supervisor, "look", lambda _: setattr(health._supervisor, "pauses", 1))
        assert await health.check()
        assert not await health.check()


def test_what_computes_elsewhere_is_not_judged_by_what_its_thread_computes() -> None:
    towers, prepare, io = (patience_with(name, 4.0) for name in ("towers", "prepare", "io"))
    assert (towers.busy_s, towers.blocked_s) == (4.0, 4.0)
    assert prepare.blocked_s == 4.0 < prepare.busy_s  # a large picture
    assert io.all_blocked_s == 4.0 < io.blocked_s  # a slow disk


def test_a_bundle_is_loaded_again_as_it_was_chosen(data: Path, tiny_bundle: Path) -> None:
    settings = Settings(provider="cpu", encode_threads=1)
    loaded, catalog = open_data(data, tiny_bundle, settings)
    catalog.close()
    reopen = _reopener(settings, data)
    assert reopen is not None
    again = reopen()
    assert again is not loaded
    assert again.manifest == loaded.manifest
    (data / "active.json").unlink()
    assert _reopener(settings, data) is None


async def test_a_model_whose_files_are_gone_is_served_on_after_its_tower_hung(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def gone() -> FakeEncoder:
        raise StartError("there is no bundle any more")

    encoder = WatchedEncoder()
    async with run_server(data, encoder, reopen=gone, **SHORT) as served, watching(served) as watch:
        encoder.hold()
        call = asyncio.ensure_future(served.embed("stuck"))
        await encoder.entered()
        assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
        encoder.release()
        await turns(watch, NOT_SERVING, SERVING)
        assert (await served.embed("again")).results[0].WhichOneof("outcome") == "embedding"
    assert "could not be made anew" in caplog.text


async def test_a_model_that_hangs_while_it_is_loaded_again_does_not_keep_health_red(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_TIMES_RENEWING", 1.0)
    encoder, fresh, loading = WatchedEncoder(), WatchedEncoder(), threading.Event()

    def reopen() -> WatchedEncoder:
        assert loading.wait(PATIENCE_S)
        return fresh

    async with run_server(data, encoder, reopen=reopen, **SHORT) as served, watching(served) as watch:
        encoder.hold()
        call = asyncio.ensure_future(served.embed("stuck"))
        await encoder.entered()
        assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
        encoder.release()
        await turns(watch, NOT_SERVING, SERVING)
        assert (await served.embed("again")).results[0].WhichOneof("outcome") == "embedding"
        assert replaced(served, "towers") == 2
        loading.set()
        await until(lambda: served.app.engine.encoder is fresh)  # late is better than never


async def test_canaries_are_no_queries_whose_recall_counts(served: Running) -> None:
    await served.fill_with_colours()
    collection = served.app.catalog.get("photos")
    assert isinstance(collection, Collection)
    for _ in range(20):
        assert await served.server.health.check()
    assert collection._state.audit._calls == 0
    await served.find(search_pb2.QueryPart(text="red"))
    assert collection._state.audit._calls == 1


async def test_an_idle_server_flies_canaries_of_a_large_model_less_often(data: Path) -> None:
    async with run_server(data, FakeEncoder(), canary_interval_s=5.0) as served:
        health = served.server.health
        pauses = []
        for work_s in (0.001, 0.2, 60.0):
            health._least_work_s = work_s
            pauses.append(health._pause_s())
        assert pauses == [5.0, pytest.approx(20.0), 60.0]
