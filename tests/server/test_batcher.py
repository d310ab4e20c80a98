from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
import pytest_asyncio

from tests.server.watched import until
from twinlens.server.core.batcher import Batcher
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Lanes, Priority
from twinlens.server.core.pool import WorkerPool

BULK = Call(priority=Priority.BULK)


class Recorder:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.answer: Callable[[Sequence[int]], Sequence[int]] = lambda items: [item * 10 for item in items]

    def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        return self.answer(items)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("test", threads=1)
    yield pool
    await asyncio.to_thread(pool.close)


@pytest_asyncio.fixture
async def batcher(recorder: Recorder, worker: WorkerPool) -> AsyncIterator[Batcher[int, int]]:
    batcher = Batcher("test", recorder, worker=worker, max_batch=4, max_delay_s=0.0, cost=lambda item: item)
    yield batcher
    await batcher.close()


async def test_outputs_go_to_their_items_whatever_the_order_they_ran_in(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    futures = [batcher.submit(item, Call()) for item in (3, 1, 2)]
    assert await asyncio.gather(*futures) == [30, 10, 20]
    assert recorder.batches == [[1, 2, 3]]


async def test_bulk_waits_for_interactive_work_but_never_starves(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    futures = [batcher.submit(100 + i, BULK) for i in range(4)]
    futures += [batcher.submit(i, Call()) for i in range(24)]
    await asyncio.gather(*futures)
    kinds = ["bulk" if batch[0] >= 100 else "interactive" for batch in recorder.batches]
    assert kinds == ["interactive"] * 3 + ["bulk"] + ["interactive"] * 3


async def test_an_item_whose_deadline_passed_is_told_so_and_not_run(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    late = batcher.submit(1, Call(deadline_s=asyncio.get_running_loop().time() - 1))
    timely = batcher.submit(2, Call(deadline_s=asyncio.get_running_loop().time() + 60))
    assert await timely == 20
    with pytest.raises(ServiceError) as caught:
        await late
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert recorder.batches == [[2]]


async def test_a_run_that_loses_items_fails_them_instead_of_mixing_them_up(
    batcher: Batcher[int, int], recorder: Recorder
) -> None:
    recorder.answer = lambda items: list(items)[:-1]
    results = await asyncio.gather(*(batcher.submit(i, Call()) for i in range(3)), return_exceptions=True)
    assert all(isinstance(result, RuntimeError) for result in results)
    recorder.answer = list
    assert await batcher.submit(5, Call()) == 5


async def test_closing_withdraws_what_waits(recorder: Recorder, worker: WorkerPool) -> None:
    batcher = Batcher("test", recorder, worker=worker, max_batch=4, max_delay_s=0.0)
    future = batcher.submit(1, Call())
    await batcher.close()
    assert future.cancelled()
    assert recorder.batches == []


def test_lanes_keep_the_order_within_a_lane() -> None:
    lanes: Lanes[str] = Lanes()
    for entry in "abc":
        lanes.push(Priority.BULK, entry)
    assert lanes.choose() is Priority.BULK
    assert [lanes.pop(Priority.BULK) for _ in range(4)] == ["a", "b", "c", None]


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
