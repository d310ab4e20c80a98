"""Batchers under random work: whatever comes, is withdrawn, fails or is late, everybody gets his own answer once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.server.watched import PATIENCE_S
from twinlens.server.core.batcher import Batcher
from twinlens.server.core.call import Call
from twinlens.server.core.errors import ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.core.pool import WorkerPool

MAX_BATCH = 4


@dataclass(frozen=True)
class Step:
    """One item that comes, and what happens to it."""

    bucket: int
    priority: Priority
    poison: bool
    withdrawn: bool
    late: bool
    pause: bool


steps = st.builds(
    Step,
    bucket=st.integers(0, 2),
    priority=st.sampled_from([Priority.INTERACTIVE, Priority.BULK]),
    poison=st.integers(0, 9).map(lambda n: n == 0),
    withdrawn=st.integers(0, 5).map(lambda n: n == 0),
    late=st.integers(0, 9).map(lambda n: n == 0),
    pause=st.booleans(),
)


class PoisonError(Exception):
    pass


@dataclass(frozen=True)
class Item:
    number: int
    step: Step


class ByBucket:
    def of(self, item: Item) -> int:
        return item.step.bucket

    def beside(self, bucket: int) -> Sequence[int]:
        return (1 - bucket,) if bucket < 2 else ()


@given(st.lists(steps, min_size=1, max_size=40))
@hypothesis_settings(max_examples=60)
def test_everybody_gets_his_own_answer_and_nothing_runs_that_nobody_waits_for(plan: list[Step]) -> None:
    batches: list[list[Item]] = []

    def run(items: Sequence[Item]) -> Sequence[int]:
        batches.append(list(items))
        if any(item.step.poison for item in items):
            raise PoisonError
        return [10 * item.number for item in items]

    async def work() -> list[int | BaseException]:
        worker = WorkerPool("test", threads=1)
        batcher = Batcher("test", run, worker=worker, max_batch=MAX_BATCH, max_delay_s=0.0, buckets=ByBucket())
        futures = []
        async with asyncio.timeout(PATIENCE_S):
            for number, step in enumerate(plan):
                deadline_s = time.monotonic() - 1 if step.late else None
                future = batcher.submit(Item(number, step), Call(priority=step.priority, deadline_s=deadline_s))
                if step.withdrawn:  # at once: it cannot have begun
                    future.cancel()
                futures.append(future)
                if step.pause:
                    await asyncio.sleep(0)
            answers = await asyncio.gather(*futures, return_exceptions=True)
        await batcher.close()
        await asyncio.to_thread(worker.close)
        return answers

    answers = asyncio.run(work())
    for number, (step, answer) in enumerate(zip(plan, answers, strict=True)):
        if step.withdrawn:
            assert isinstance(answer, asyncio.CancelledError)
        elif step.late:
            assert isinstance(answer, ServiceError)
        elif step.poison:
            assert isinstance(answer, PoisonError)
        else:
            assert answer == 10 * number
    ran = [item for batch in batches for item in batch]
    assert not any(item.step.withdrawn or item.step.late for item in ran)
    assert max((len(batch) for batch in batches), default=1) <= MAX_BATCH
    for batch in batches:
        assert len({item.step.priority for item in batch}) == 1
        assert len({item.step.bucket == 2 for item in batch}) == 1  # bucket 2 goes with no other
    healthy = [item for item in ran if not any(step.poison for step in plan)]
    for priority in (Priority.INTERACTIVE, Priority.BULK):
        for bucket in range(3):
            alike = [i.number for i in healthy if (i.step.priority, i.step.bucket) == (priority, bucket)]
            assert alike == sorted(alike)  # first in, first out
