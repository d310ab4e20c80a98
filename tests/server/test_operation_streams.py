"""Streamed answers of long operations: their failures, their ends, and callers who hang up or stop reading."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from tests.server.running import Running, end_of, refusal, run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.index.operations.steps import Progress
from twinlens.v1 import collection_operations_pb2 as pb


@pytest_asyncio.fixture
async def filled(data: Path) -> AsyncIterator[Running]:
    """A server with a collection of coloured pictures and room for one operation."""
    async with run_server(data, FakeEncoder(), max_operations=1) as running:
        await running.fill_with_colours()
        yield running


async def test_a_streamed_answer_that_fails_in_the_middle_is_a_status_with_its_request_id(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = filled.app.catalog.get("photos")

    def broken(*_: Any, **__: Any) -> Any:
        yield Progress("pictures", 0, 9)
        raise OSError("secret /path/of/the/server")

    monkeypatch.setattr(collection, "check", broken)
    stream = filled.operations.CheckCollection(
        pb.CheckCollectionRequest(collection="photos"), metadata=(("x-request-id", "mine"),)
    )
    first: Any = await stream.read()
    assert first.progress.total == 9
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stream.read()
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert failed.value.details() == "internal error; the server's log has the cause under request mine"
    assert dict(failed.value.trailing_metadata())["x-request-id"] == "mine"


async def test_bytes_that_are_no_request_of_a_streaming_method_are_refused(filled: Running) -> None:
    method: Any = filled.channel.unary_stream("/twinlens.v1.CollectionOperationsService/CheckCollection")
    code, message = await refusal(method(b"\xff\xff\xff"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a message" in message


class Endless:
    """A check that goes on until it is closed, and whose every step takes so many bytes."""

    def __init__(self, served: Running, monkeypatch: pytest.MonkeyPatch, step_bytes: int = 0) -> None:
        self.closed = threading.Event()
        self._step_bytes = step_bytes
        monkeypatch.setattr(served.app.catalog.get("photos"), "check", self._check)

    def _check(self) -> Iterator[Progress]:
        try:
            for done in itertools.count():
                yield Progress(f"step {done}".ljust(self._step_bytes), done, 0)
        finally:
            self.closed.set()


async def rest_of(call: Any) -> None:
    """Reads a call to its end that was begun with `read`."""
    while await call.read() is not grpc.aio.EOF:
        pass


CHECK = pb.CheckCollectionRequest(collection="photos")


async def test_progress_is_told_as_often_as_somebody_could_read_it(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [Progress(step, done, 5000) for step in ("one", "two") for done in range(5001)]
    monkeypatch.setattr(filled.app.catalog.get("photos"), "check", lambda: (step for step in steps))
    told = [(reply.progress.step, reply.progress.done) async for reply in filled.operations.CheckCollection(CHECK)]
    assert {("one", 0), ("one", 5000), ("two", 0), ("two", 5000)} <= set(told)
    assert len(told) < 1000


async def test_one_operation_too_many_is_refused_until_the_caller_of_another_hangs_up(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = Endless(filled, monkeypatch)
    running = filled.operations.CheckCollection(CHECK)
    await running.read()
    request = pb.ExportItemsRequest(collection="photos")
    code, message = await refusal(filled.operations.ExportItems(request))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "1 long operations already" in message
    running.cancel()
    assert await asyncio.to_thread(endless.closed.wait, 30)
    while filled.app.operations._running:  # noqa: ASYNC110 - its thread tells of the end a moment later
        await asyncio.sleep(0)
    await end_of(filled.operations.ExportItems(request))


async def test_a_caller_who_stops_reading_loses_the_answer_and_gives_its_place_to_others(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.server.services.interceptor._STALL_S", 0.2)
    endless = Endless(filled, monkeypatch, step_bytes=2**18)
    stalled = filled.operations.CheckCollection(CHECK)
    await stalled.read()
    assert await asyncio.to_thread(endless.closed.wait, 30)
    while filled.app.operations._running:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    await end_of(filled.operations.ExportItems(pb.ExportItemsRequest(collection="photos")))
    with pytest.raises(grpc.aio.AioRpcError, match=r"nothing of the answer was read for 0\.2 s") as ended:
        await rest_of(stalled)
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_server_that_stops_ends_the_operations_that_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_server(data, FakeEncoder()) as served:
        await served.fill_with_colours()
        endless = Endless(served, monkeypatch)
        await served.operations.CheckCollection(CHECK).read()
    assert endless.closed.is_set()
