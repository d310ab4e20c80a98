from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from twinlens.index.interruption import is_abandoned
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.operations import OperationRunner
from twinlens.server.core.telemetry import Telemetry


async def test_a_stream_hands_out_what_the_iterator_yields_from_a_thread_of_its_own() -> None:
    threads = set()

    def numbers() -> Iterator[int]:
        for number in range(5):
            threads.add(threading.get_ident())
            yield number

    runner = OperationRunner(1)
    assert [number async for number in runner.stream(numbers)] == [0, 1, 2, 3, 4]
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_what_the_iterator_raises_comes_through_after_what_it_yielded() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ServiceError(Code.NOT_FOUND, "gone")

    runner = OperationRunner(1)
    numbers = runner.stream(broken)
    assert await anext(numbers) == 1
    with pytest.raises(ServiceError, match="gone"):
        await anext(numbers)
    assert [number async for number in runner.stream(lambda: iter([7]))] == [7]  # the place is free again


async def test_an_iterator_is_closed_when_nobody_wants_more_of_it() -> None:
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    runner = OperationRunner(1)
    async with aclosing(runner.stream(endless)) as numbers:
        async for _ in numbers:
            break
    assert ended.is_set()


async def test_a_caller_who_hangs_up_in_the_middle_of_a_step_has_it_closed_after_that_step() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        try:
            began.set()
            go_on.wait(30)
            yield 1
        finally:
            ended.set()

    runner = OperationRunner(1)

    async def consume() -> None:
        async with aclosing(runner.stream(slow)) as numbers:
            async for _ in numbers:
                pass

    task = asyncio.create_task(consume())
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_step_learns_that_its_caller_hung_up() -> None:
    began, ended, give_up_s = threading.Event(), threading.Event(), time.monotonic() + 10

    def endless() -> Iterator[int]:
        began.set()
        while not is_abandoned():
            assert time.monotonic() < give_up_s
        ended.set()
        yield 1

    runner = OperationRunner(1)

    async def consume() -> None:
        async with aclosing(runner.stream(endless)) as numbers:
            async for _ in numbers:
                pass

    task = asyncio.create_task(consume())
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_one_operation_too_many_is_refused_at_once() -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait() -> str:
        began.set()
        go_on.wait(30)
        return "done"

    runner = OperationRunner(1)
    first = asyncio.create_task(runner.run(wait))
    await asyncio.to_thread(began.wait, 30)
    with pytest.raises(ServiceError, match="1 long operations already") as refused:
        await runner.run(wait)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    assert refused.value.retry_after_s
    go_on.set()
    assert await first == "done"


async def test_work_goes_on_where_its_caller_hangs_up_and_keeps_its_place_until_it_ends() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(30)
        ended.set()

    runner = OperationRunner(1)
    task = asyncio.create_task(runner.run(work))
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ServiceError):
        await runner.run(work)
    go_on.set()
    await asyncio.to_thread(ended.wait, 30)
    while runner._running:  # noqa: ASYNC110 - the loop learns of the end a moment later
        await asyncio.sleep(0)


async def test_an_operation_that_gets_no_thread_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_to_be_had(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    runner = OperationRunner(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_to_be_had)
        with pytest.raises(RuntimeError, match="thread"):
            await runner.run(lambda: 1)
        with pytest.raises(RuntimeError, match="thread"):
            await anext(runner.stream(lambda: iter([1])))
    assert await runner.run(lambda: 1) == 1


async def test_what_is_refused_is_counted_apart_from_what_a_full_server_refuses() -> None:
    telemetry = Telemetry()
    runner = OperationRunner(1, telemetry.refused.labels("operations"))
    ended = threading.Event()
    running = asyncio.ensure_future(runner.run(ended.wait))
    await asyncio.sleep(0)
    for refused in (runner.run(ended.wait), anext(runner.stream(lambda: iter([1])))):
        with pytest.raises(ServiceError, match="1 long operations already"):
            await refused
    ended.set()
    await running
    assert telemetry.registry.get_sample_value("twinlens_refused_calls_total", {"why": "operations"}) == 2
