"""When batchers ask for a turn on the worker they share, and what becomes of those who wait when it ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.test_batcher import BULK, Recorder
from tests.server.watched import PATIENCE_S, until
from twinlens.server.core.batcher import Batcher
from twinlens.server.core.call import Call
from twinlens.server.core.pool import WorkerPool


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


async def rounds_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_turn_is_queued_while_a_batch_runs(recorder: Recorder) -> None:
    pool = WorkerPool("test", threads=1)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    recorder.hold()
    futures = [batcher.submit(item, Call()) for item in range(6)]
    await until(lambda: recorder.batches == [[0, 1, 2, 3]])
    await until(lambda: len(pool) == 1)  # though nothing new came
    recorder.release()
    await asyncio.gather(*futures)
    await batcher.close()
    await asyncio.to_thread(pool.close)


async def test_interactive_work_overtakes_the_turns_of_others_too(recorder: Recorder) -> None:
    pool = WorkerPool("test", threads=1)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    other = Batcher("other", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    recorder.hold()
    futures = [other.submit(100, Call())]
    await until(lambda: recorder.batches == [[100]])
    for asking, item, call in ((other, 101, BULK), (batcher, 1, BULK), (batcher, 2, BULK), (batcher, 3, Call())):
        futures.append(asking.submit(item, call))
        await rounds_of_the_loop()
    assert len(pool) == 3  # one for all bulk work of a batcher
    recorder.release()
    await asyncio.gather(*futures)
    assert recorder.batches == [[100], [3], [101], [1, 2]]
    await batcher.close()
    await other.close()
    await asyncio.to_thread(pool.close)


async def test_closing_leaves_nobody_waiting_for_a_batch_that_hangs(recorder: Recorder) -> None:
    pool = WorkerPool("test", threads=1)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    recorder.hold()
    future = batcher.submit(1, Call())
    await until(lambda: recorder.batches == [[1]])
    await batcher.close()
    assert future.cancelled()
    recorder.release()
    await asyncio.to_thread(pool.close)


async def test_what_comes_after_the_end_is_withdrawn(recorder: Recorder) -> None:
    pool = WorkerPool("test", threads=1)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    await batcher.close()
    future = batcher.submit(1, Call())
    await until(future.cancelled)
    assert recorder.batches == []
    await asyncio.to_thread(pool.close)


async def test_a_pool_that_closes_before_a_turn_came_leaves_nobody_waiting(recorder: Recorder) -> None:
    pool = WorkerPool("test", threads=1)
    batcher = Batcher("test", recorder, worker=pool, max_batch=4, max_delay_s=0.0)
    recorder.hold()
    running = batcher.submit(1, Call())
    await until(lambda: recorder.batches == [[1]])
    waiting = batcher.submit(2, Call())
    await until(lambda: len(pool) == 1)
    closing = asyncio.create_task(asyncio.to_thread(pool.close))
    async with asyncio.timeout(PATIENCE_S):
        await until(waiting.cancelled)
    recorder.release()
    assert await running == 10
    await closing
    assert recorder.batches == [[1]]
