from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
import pytest_asyncio

from tests.server.watched import PATIENCE_S, until
from twinlens.server.core.batcher import Batcher
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.core.patience import Patience
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry

BULK = Call(priority=Priority.BULK)


class Recorder:
    """Answers ten times the item; `hold` makes it wait inside a batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.answer: Callable[[Sequence[int]], Sequence[int]] = lambda items: [item * 10 for item in items]
        self._open = threading.Event()
        self._open.set()

    def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        assert self._open.wait(PATIENCE_S)
        return self.answer(items)

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()


class Thousands:
    """Items of one thousand are alike, and those of the next lower one are near."""

    def of(self, item: int) -> int:
        return item // 1000

    def beside(self, bucket: int) -> Sequence[int]:
        return (bucket - 1,)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("test", threads=1)
    yield pool
    await asyncio.to_thread(pool.close)


@pytest_asyncio.fixture
async def batcher(recorder: Recorder, worker: WorkerPool, telemetry: Telemetry) -> AsyncIterator[Batcher[int, int]]:
    batcher = Batcher(
        "test",
        recorder,
        worker=worker,
        max_batch=4,
        max_delay_s=0.0,
        buckets=Thousands(),
        telemetry=telemetry,
    )
    yield batcher
    recorder.release()
    await batcher.close()


def dropped(telemetry: Telemetry, why: str) -> float | None:
    return telemetry.registry.get_sample_value("twinlens_dropped_items_total", {"stage": "tower", "why": why})


async def test_items_that_come_together_run_together_and_outputs_go_to_their_items(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    futures = [batcher.submit(item, Call()) for item in (3, 1, 2)]
    assert await asyncio.gather(*futures) == [30, 10, 20]
    assert recorder.batches == [[3, 1, 2]]


async def test_bulk_waits_for_interactive_work_but_never_starves(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    futures = [batcher.submit(100 + i, BULK) for i in range(4)]
    futures += [batcher.submit(i, Call()) for i in range(24)]
    await asyncio.gather(*futures)
    kinds = ["bulk" if batch[0] >= 100 else "interactive" for batch in recorder.batches]
    assert kinds == ["interactive"] * 3 + ["bulk"] + ["interactive"] * 3


async def test_items_of_different_buckets_do_not_wait_for_each_other(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    futures = [batcher.submit(item, Call()) for item in (1, 2001, 2, 5001, 3, 2002)]
    await asyncio.gather(*futures)
    assert recorder.batches == [[1, 2, 3], [2001, 2002], [5001]]


async def test_a_batch_is_filled_up_with_what_is_near(batcher: Batcher[int, int], recorder: Recorder) -> None:
    futures = [batcher.submit(item, Call()) for item in (2001, 1001, 2002, 1002, 1003, 1004, 3001)]
    await asyncio.gather(*futures)
    assert recorder.batches == [[2001, 2002, 1001, 1002], [1003, 1004], [3001]]


async def test_the_next_batch_is_taken_when_the_one_before_it_ends(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    recorder.hold()
    first = batcher.submit(1, Call())
    await until(lambda: recorder.batches == [[1]])
    second = batcher.submit(2, BULK)
    await until(lambda: len(batcher) == 1)
    late = [batcher.submit(item, Call()) for item in (3, 4)]  # overtake, though the turn was asked for by bulk work
    recorder.release()
    await asyncio.gather(first, second, *late)
    assert recorder.batches == [[1], [3, 4], [2]]


async def test_an_item_whose_deadline_passed_is_told_so_and_not_run(
    batcher: Batcher[int, int], recorder: Recorder, telemetry: Telemetry
) -> None:
    late = batcher.submit(1, Call(deadline_s=time.monotonic() - 1))
    timely = batcher.submit(2, Call(deadline_s=time.monotonic() + 60))
    assert await timely == 20
    with pytest.raises(ServiceError) as caught:
        await late
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert recorder.batches == [[2]]
    assert dropped(telemetry, "expired") == 1


async def test_withdrawn_items_are_not_run_and_counted(
    batcher: Batcher[int, int], recorder: Recorder, telemetry: Telemetry
) -> None:
    gone = [batcher.submit(item, Call()) for item in (1, 2)]
    kept = batcher.submit(3, Call())
    for future in gone:
        future.cancel()
    assert await kept == 30
    assert recorder.batches == [[3]]
    assert dropped(telemetry, "cancelled") == 2


async def test_a_failed_batch_is_run_item_by_item_before_what_waits(
    batcher: Batcher[int, int], recorder: Recorder, telemetry: Telemetry
) -> None:
    def answer(items: Sequence[int]) -> Sequence[int]:
        if 2 in items:
            raise ZeroDivisionError
        return list(items)

    recorder.answer = answer
    futures = [batcher.submit(item, Call()) for item in (1, 2, 3, 4, 5, 6)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(results[1], ZeroDivisionError)
    assert [result for result in results if isinstance(result, int)] == [1, 3, 4, 5, 6]
    assert recorder.batches == [[1, 2, 3, 4], [1], [2], [3], [4], [5, 6]]
    assert telemetry.registry.get_sample_value("twinlens_retried_batches_total", {"tower": "test"}) == 1


async def test_a_batch_that_the_server_gave_up_is_not_tried_again(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    def answer(items: Sequence[int]) -> Sequence[int]:
        raise ServiceError(Code.UNAVAILABLE, "the worker was replaced")

    recorder.answer = answer
    results = await asyncio.gather(*(batcher.submit(i, Call()) for i in range(3)), return_exceptions=True)
    assert [getattr(result, "code", None) for result in results] == [Code.UNAVAILABLE] * 3
    assert len(recorder.batches) == 1


async def test_a_run_that_loses_items_fails_them_instead_of_mixing_them_up(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    recorder.answer = lambda items: list(items)[:-1]
    results = await asyncio.gather(*(batcher.submit(i, Call()) for i in range(3)), return_exceptions=True)
    assert all(isinstance(result, RuntimeError) for result in results)
    recorder.answer = list
    assert await batcher.submit(5, Call()) == 5


async def test_a_batcher_waits_for_callers_who_are_about_to_come_back(recorder: Recorder, worker: WorkerPool) -> None:
    batcher = Batcher("test", recorder, worker=worker, max_batch=4, max_delay_s=PATIENCE_S)
    await asyncio.gather(*(batcher.submit(i, Call()) for i in range(3)))
    back = [batcher.submit(10, Call())]
    for i in (11, 12):
        await asyncio.sleep(0)  # other rounds of the loop, so that the turn begins before they come
        back.append(batcher.submit(i, Call()))
    async with asyncio.timeout(PATIENCE_S / 2):
        await asyncio.gather(*back)
    assert recorder.batches == [[0, 1, 2], [10, 11, 12]]
    await batcher.close()


async def test_a_batcher_waits_for_nobody_while_others_need_the_worker(recorder: Recorder, worker: WorkerPool) -> None:
    batcher = Batcher("test", recorder, worker=worker, max_batch=4, max_delay_s=PATIENCE_S)
    other = Batcher("other", recorder, worker=worker, max_batch=4, max_delay_s=0.0)
    await asyncio.gather(*(batcher.submit(i, Call()) for i in range(3)))
    recorder.hold()
    blocking = other.submit(100, Call())
    await until(lambda: recorder.batches[-1] == [100])
    waits, behind = batcher.submit(1, Call()), other.submit(101, Call())
    await until(lambda: len(worker) == 2)
    recorder.release()
    async with asyncio.timeout(PATIENCE_S / 2):
        await asyncio.gather(blocking, waits, behind)
    assert recorder.batches == [[0, 1, 2], [100], [1], [101]]
    await batcher.close()
    await other.close()


async def test_batches_are_timed_and_counted(batcher: Batcher[int, int], telemetry: Telemetry) -> None:
    await asyncio.gather(*(batcher.submit(i, Call()) for i in range(6)))
    value = telemetry.registry.get_sample_value
    assert value("twinlens_batch_items_count", {"tower": "test"}) == 2
    assert value("twinlens_batch_items_sum", {"tower": "test"}) == 6
    assert value("twinlens_queue_seconds_count", {"tower": "test"}) == 6
    assert value("twinlens_encode_seconds_count", {"tower": "test"}) == 2
    assert value("twinlens_queued_items", {"tower": "test"}) == 0


async def test_a_slow_batch_is_taken_for_stuck_once_and_not_again_and_again(recorder: Recorder) -> None:
    pool = WorkerPool("towers", threads=1, size_of=len)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    patience = Patience(busy_s=0.0, times_usual=3.0)
    threads: list[threading.Thread] = []

    def answer(items: Sequence[int]) -> Sequence[int]:
        threads.append(threading.current_thread())
        return items

    async def slow(seen_s: float) -> list[asyncio.Future[int]]:
        recorder.hold()
        futures = [batcher.submit(i, Call()) for i in range(4)]
        await until(lambda: len(recorder.batches) == len(threads) + 1)
        for _ in range(2):
            troubles.extend(pool.look(patience, seen_s))
        return futures

    troubles: list[object] = []
    recorder.answer = answer
    await batcher.submit(1, Call())
    begun_s = time.monotonic()
    failed = await asyncio.gather(*await slow(1e9), return_exceptions=True)
    assert [getattr(error, "code", None) for error in failed] == [Code.UNAVAILABLE] * 4
    await until(lambda: time.monotonic() > begun_s + 0.1)
    recorder.release()
    await until(lambda: len(threads) == 2 and not threads[1].is_alive())
    again = await slow(0.1)
    recorder.release()
    assert await asyncio.gather(*again) == [0, 1, 2, 3]
    assert len(troubles) == 1
    await batcher.close()
    await asyncio.to_thread(pool.close)


async def test_closing_withdraws_what_waits(recorder: Recorder, worker: WorkerPool) -> None:
    batcher = Batcher("test", recorder, worker=worker, max_batch=4, max_delay_s=0.0)
    future = batcher.submit(1, Call())
    await batcher.close()
    assert future.cancelled()
    assert recorder.batches == []


async def test_a_closed_pool_leaves_nobody_waiting(recorder: Recorder) -> None:
    pool = WorkerPool("test", threads=1)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    await asyncio.to_thread(pool.close)
    future = batcher.submit(1, Call())
    await until(future.cancelled)
    assert recorder.batches == []


async def test_a_worker_survives_what_its_work_raises() -> None:
    pool = WorkerPool("test", threads=1)
    with pytest.raises(ZeroDivisionError):
        await pool.submit(Priority.INTERACTIVE, lambda: 1 // 0)
    assert await pool.submit(Priority.INTERACTIVE, lambda: 7) == 7
    await asyncio.to_thread(pool.close)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Priority.INTERACTIVE, lambda: 1)


async def test_work_withdrawn_before_it_began_does_not_run() -> None:
    pool = WorkerPool("test", threads=1)
    began, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def block() -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

    ran: list[int] = []
    first = pool.submit(Priority.INTERACTIVE, block)
    await began.wait()
    withdrawn = pool.submit(Priority.INTERACTIVE, ran.append, 1)
    last = pool.submit(Priority.INTERACTIVE, ran.append, 2)
    withdrawn.cancel()
    go.set()
    await asyncio.gather(first, last)
    await until(lambda: ran == [2])
    await asyncio.to_thread(pool.close)
