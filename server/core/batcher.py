"""Dynamic batching across calls: one batcher a tower.

An idle batcher runs an item at once; while a batch runs, the next one forms. Right after a batch it lingers a moment
(at most `max_delay_s`) for callers that are about to come back, and only if fewer wait than ran before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Lanes, Priority
from twinlens.server.core.pool import WorkerPool

log = logging.getLogger(__name__)

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(slots=True)
class BatchCounts:
    """What a batcher did since it started."""

    batches: int = 0
    items: int = 0
    cancelled: int = 0
    expired: int = 0
    retried_batches: int = 0


@dataclass(frozen=True, slots=True)
class _Entry(Generic[In, Out]):
    item: In
    deadline_s: float | None
    future: asyncio.Future[Out]


class Batcher(Generic[In, Out]):
    """Groups single items of many callers into calls of one blocking function.

    Args:
        name: For threads and logs.
        run: Blocking; takes a non-empty batch, returns one output an item, in order.
        worker: Where it runs; batchers that share a worker of one thread take turns, interactive batches first. Whoever
            made it closes it, after the batchers.
        max_batch: Most items in one call of `run`.
        max_delay_s: Longest wait for more items once the batcher could run.
        cost: Size of an item; a batch is sorted by it, so that `run` can pad neighbours together.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[In]], Sequence[Out]],
        *,
        worker: WorkerPool,
        max_batch: int,
        max_delay_s: float,
        cost: Callable[[In], int] | None = None,
    ) -> None:
        self.counts = BatchCounts()
        self._name = name
        self._run = run
        self._max_batch = max_batch
        self._max_delay_s = max_delay_s
        self._cost = cost
        self._lanes: Lanes[_Entry[In, Out]] = Lanes()
        self._worker = worker
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_size = 0
        self._last_end_s = float("-inf")

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._lanes)

    def submit(self, item: In, call: Call) -> asyncio.Future[Out]:
        """Queues one item; cancel the returned future to withdraw it.

        The future fails with what `run` raises for this item alone, or with DEADLINE_EXCEEDED if the call's
        deadline passed before the item ran.
        """
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._serve(), name=f"twinlens-batcher-{self._name}")
        future: asyncio.Future[Out] = loop.create_future()
        self._lanes.push(call.priority, _Entry(item, call.deadline_s, future))
        self._arrived.set()
        return future

    async def close(self) -> None:
        """Stops; what waits and what runs is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for entry in self._lanes.drain():
            entry.future.cancel()

    async def _serve(self) -> None:
        while True:
            while not len(self._lanes):
                self._arrived.clear()
                await self._arrived.wait()
            await self._linger()
            lane, batch = self._form()
            if not batch:
                continue
            try:
                await self._answer(batch, lane)
            except Exception:
                log.exception("batcher %s failed on a batch of %d; it goes on", self._name, len(batch))
                _fail(batch, RuntimeError("the batch could not be answered"))
            finally:
                # Nobody waits for ever, whatever ended this batch.
                for entry in batch:
                    entry.future.cancel()
            self._last_size = len(batch)
            self._last_end_s = asyncio.get_running_loop().time()

    async def _linger(self) -> None:
        loop = asyncio.get_running_loop()
        enough = min(self._max_batch, self._last_size)
        while len(self._lanes) < enough:
            left_s = self._last_end_s + self._max_delay_s - loop.time()
            if left_s <= 0:
                return
            self._arrived.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _form(self) -> tuple[Priority, list[_Entry[In, Out]]]:
        """Takes the next batch from one lane and drops entries nobody waits for."""
        now_s = asyncio.get_running_loop().time()
        lane = self._lanes.choose()
        batch: list[_Entry[In, Out]] = []
        while len(batch) < self._max_batch and (entry := self._lanes.pop(lane)) is not None:
            if entry.future.done():
                self.counts.cancelled += 1
            elif entry.deadline_s is not None and entry.deadline_s <= now_s:
                self.counts.expired += 1
                entry.future.set_exception(
                    ServiceError(Code.DEADLINE_EXCEEDED, "the deadline passed before the item was run")
                )
            else:
                batch.append(entry)
        self._lanes.turn_taken(lane)
        if self._cost is not None:
            cost = self._cost
            batch.sort(key=lambda entry: cost(entry.item))
        return lane, batch

    async def _answer(self, batch: list[_Entry[In, Out]], lane: Priority) -> None:
        self.counts.batches += 1
        self.counts.items += len(batch)
        try:
            outputs = await self._call(batch, lane)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            log.warning("batcher %s: a batch of %d failed, its items run alone", self._name, len(batch), exc_info=True)
        else:
            for entry, output in zip(batch, outputs, strict=True):
                if not entry.future.done():
                    entry.future.set_result(output)
            return
        self.counts.retried_batches += 1
        for entry in batch:
            if entry.future.done():
                continue
            try:
                (output,) = await self._call([entry], lane)
            except Exception as error:
                _fail([entry], error)
            else:
                if not entry.future.done():
                    entry.future.set_result(output)

    async def _call(self, batch: list[_Entry[In, Out]], lane: Priority) -> Sequence[Out]:
        items = [entry.item for entry in batch]
        outputs = await self._worker.submit(lane, self._run, items)
        if len(outputs) != len(items):
            msg = f"{self._name} gave {len(outputs)} outputs for {len(items)} items"
            raise RuntimeError(msg)
        return outputs


def _fail(entries: Sequence[_Entry[In, Out]], error: Exception) -> None:
    for entry in entries:
        if not entry.future.done():
            entry.future.set_exception(error)
