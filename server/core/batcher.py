"""Dynamic batching across calls: one batcher a tower.

An idle batcher runs an item at once; while a batch runs, the next one forms. A batch is taken from what waits at the
moment the tower is free, by the tower's own thread: it never waits for the event loop, which may be busy. Right after a
batch it lingers a moment (at most `max_delay_s`) for callers that are about to come back, and only if fewer wait than
ran before.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Lanes, Priority
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.core.trace_batch import trace_batch

log = logging.getLogger(__name__)

In = TypeVar("In")
In_contra = TypeVar("In_contra", contravariant=True)
Out = TypeVar("Out")


class Buckets(Protocol[In_contra]):
    """Which items are best run together."""

    def of(self, item: In_contra) -> int:
        """The bucket of an item."""

    def beside(self, bucket: int) -> Sequence[int]:
        """Buckets that fill up a batch of a bucket, best first; items of all others have a batch of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class _Entry(Generic[In, Out]):
    item: In
    call: Call
    since_s: float
    future: asyncio.Future[Out]


@dataclass(slots=True, eq=False)
class _Turn(Generic[In, Out]):
    """A turn on the worker; what runs in it is decided when it comes.

    Its length is that of the batch it began with, also when others were told of that batch and let go of it.
    """

    lane: Priority
    begun: bool = False
    batch: list[_Entry[In, Out]] = field(default_factory=list)
    size: int = 0

    def __len__(self) -> int:
        return self.size


class Batcher(Generic[In, Out]):
    """Groups single items of many callers into calls of one blocking function.

    Args:
        name: For metrics and logs.
        run: Blocking; takes a non-empty batch, returns one output an item, in order.
        worker: Where it runs; batchers that share a worker of one thread take turns, interactive batches first. Whoever
            made it closes it, after the batchers.
        max_batch: Most items in one call of `run`.
        max_delay_s: Longest wait for more items once the batcher could run.
        buckets: Items of like buckets are run together; the bucket of the oldest goes first. None: all are alike.
        telemetry: Counts and times.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[In]], Sequence[Out]],
        *,
        worker: WorkerPool,
        max_batch: int,
        max_delay_s: float,
        buckets: Buckets[In] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._name = name
        self._run = run
        self._max_batch = max_batch
        self._max_delay_s = max_delay_s
        self._buckets = buckets
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        # Items come in on the event loop and are taken on the worker's thread; the lock guards all from here on.
        self._arrived = threading.Condition()
        self._lanes: Lanes[_Entry[In, Out]] = Lanes()
        self._queued: set[Priority] = set()
        self._lingers = False
        self._closed = False
        self._last_size = 0
        self._last_end_s = float("-inf")
        # These two are the event loop's alone.
        self._asked = False
        self._turns: set[_Turn[In, Out]] = set()

        metrics = telemetry or Telemetry()
        self._queue_seconds = metrics.queue_seconds.labels(name)
        self._encode_seconds = metrics.encode_seconds.labels(name)
        self._batch_items = metrics.batch_items.labels(name)
        self._retried = metrics.retried_batches.labels(name)
        self._cancelled = metrics.dropped_items.labels("tower", "cancelled")
        self._expired = metrics.dropped_items.labels("tower", "expired")
        metrics.queued_items.labels(name).set_function(lambda: float(len(self)))

        def take_turn(turn: _Turn[In, Out]) -> Sequence[Out]:
            return self._take_turn(turn)

        # By which the pool knows how long the batches of this tower usually take.
        take_turn.__qualname__ = f"{name} batch"
        self._work = take_turn

    def __len__(self) -> int:
        """How many items wait."""
        with self._arrived:
            return len(self._lanes)

    def submit(self, item: In, call: Call) -> asyncio.Future[Out]:
        """Queues one item; cancel the returned future to withdraw it.

        The future fails with what `run` raises for this item alone, with the `ServiceError` that ended its batch, or
        with DEADLINE_EXCEEDED if the call's deadline passed before the item ran.
        """
        loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Out] = loop.create_future()
        bucket = 0 if self._buckets is None else self._buckets.of(item)
        with self._arrived:
            self._lanes.push(call.priority, _Entry(item, call, time.monotonic(), future), bucket)
            if self._lingers:
                self._arrived.notify()
        if not self._asked:
            # Not at once: what else comes in this round of the loop shall be there when the turn begins.
            self._asked = True
            loop.call_soon(self._ask)
        return future

    async def close(self) -> None:
        """Stops; what waits and what runs is cancelled."""
        with self._arrived:
            self._closed = True
            self._withdraw()
            self._arrived.notify_all()
        for entry in (entry for turn in self._turns for entry in turn.batch):
            entry.future.cancel()

    def _ask(self) -> None:
        """Queues a turn for the most urgent that waits, unless one that is as urgent is queued already."""
        self._asked = False
        if self._closed:
            self._withdraw()
            return
        with self._arrived:
            lane = self._lanes.most_urgent()
            if lane is None or any(queued <= lane for queued in self._queued):
                return
            self._queued.add(lane)
        turn: _Turn[In, Out] = _Turn(lane)
        self._turns.add(turn)
        try:
            job = self._worker.submit(lane, self._work, turn)
        except RuntimeError:  # the pool is closed, and so will this be
            self._turns.discard(turn)
            self._withdraw()
            return
        job.add_done_callback(lambda done: self._ended(turn, done))

    def _withdraw(self) -> None:
        """Leaves nobody waiting for a turn that will not come."""
        with self._arrived:
            waiting = self._lanes.drain()
        for entry in waiting:
            entry.future.cancel()

    def _take_turn(self, turn: _Turn[In, Out]) -> Sequence[Out]:
        """Forms a batch and runs it. On the worker's thread."""
        with self._arrived:
            self._linger()
            self._queued.discard(turn.lane)
            turn.begun = True
            batch, expired = self._form()
            turn.batch, turn.size = batch, len(batch)
            more = len(self._lanes) > 0
        if expired:
            self._on_loop(lambda: _fail(expired, _too_late()))
        if more:
            # Queued while this one runs, so that the worker goes from batch to batch.
            self._on_loop(self._ask)
        if not batch:
            return ()
        try:
            return self._answer(batch)
        except Exception as error:
            if isinstance(error, ServiceError) or len(batch) == 1 or not self._requeue(turn):
                # The failure refers by its traceback to the frames that ran the batch. They are not to refer back to it
                # by the futures of the batch: pictures would stay until the collector of garbage looks at them.
                turn.batch = batch.copy()
                batch.clear()
                raise
            log.warning("batcher %s: a batch of %d failed, its items run alone", self._name, len(batch), exc_info=error)
            return ()

    def _answer(self, batch: Sequence[_Entry[In, Out]]) -> Sequence[Out]:
        began_s = time.monotonic()
        for since_s in [entry.since_s for entry in batch]:
            self._queue_seconds.observe(began_s - since_s)
        self._batch_items.observe(len(batch))
        try:
            outputs = self._run([entry.item for entry in batch])
        finally:
            ended_s = time.monotonic()
            self._encode_seconds.observe(ended_s - began_s)
            waiting = ((entry.call, entry.since_s) for entry in batch)
            trace_batch(waiting, tower=self._name, items=len(batch), began_s=began_s, ended_s=ended_s)
            with self._arrived:
                self._last_size = len(batch)
                self._last_end_s = ended_s
        if len(outputs) != len(batch):
            msg = f"{self._name} gave {len(outputs)} outputs for {len(batch)} items"
            raise RuntimeError(msg)
        return outputs

    def _requeue(self, turn: _Turn[In, Out]) -> bool:
        """Queues the items of a batch that failed once more, each to be run alone, before what waits."""
        with self._arrived:
            if self._closed:
                return False
            for entry in reversed(turn.batch):
                self._lanes.push(entry.call.priority, entry, ("alone", id(entry)), first=True)
            turn.batch, turn.size = [], 0
        self._retried.inc()
        return True

    def _linger(self) -> None:
        enough = min(self._max_batch, self._last_size)
        self._lingers = True
        # Whoever else waits for the worker shall not wait for callers of ours.
        while 0 < len(self._lanes) < enough and not self._closed and not len(self._worker):
            left_s = self._last_end_s + self._max_delay_s - time.monotonic()
            if left_s <= 0 or not self._arrived.wait(left_s):
                break
        self._lingers = False

    def _form(self) -> tuple[list[_Entry[In, Out]], list[_Entry[In, Out]]]:
        """Takes the next batch from one lane, and what expired; drops what nobody waits for."""
        lane = self._lanes.choose()
        oldest = self._lanes.oldest_bucket(lane)
        beside = self._buckets.beside(oldest) if self._buckets is not None and isinstance(oldest, int) else ()
        batch: list[_Entry[In, Out]] = []
        expired: list[_Entry[In, Out]] = []
        cancelled = 0
        for bucket in (oldest, *beside):
            while len(batch) < self._max_batch and (entry := self._lanes.pop(lane, bucket)) is not None:
                if entry.future.done():
                    cancelled += 1
                elif entry.call.expired:
                    expired.append(entry)
                else:
                    batch.append(entry)
        self._lanes.turn_taken(lane)
        self._cancelled.inc(cancelled)
        self._expired.inc(len(expired))
        return batch, expired

    def _ended(self, turn: _Turn[In, Out], job: asyncio.Future[Sequence[Out]]) -> None:
        """Hands out what a turn brought. On the event loop."""
        self._turns.discard(turn)
        batch = turn.batch
        try:
            if job.cancelled():
                return
            error = job.exception()
            if error is None:
                for entry, output in zip(batch, job.result(), strict=True):
                    if not entry.future.done():
                        entry.future.set_result(output)
            else:
                _fail(batch, error)
        finally:
            for entry in batch:  # nobody waits for ever, whatever ended this batch
                entry.future.cancel()
            turn.batch = []
            if not turn.begun:
                with self._arrived:
                    self._queued.discard(turn.lane)
            self._ask()

    def _on_loop(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            assert self._loop is not None  # noqa: S101 - a turn follows a submission
            self._loop.call_soon_threadsafe(act)


def _too_late() -> ServiceError:
    return ServiceError(Code.DEADLINE_EXCEEDED, "the deadline passed before the item was run")


def _fail(entries: Sequence[_Entry[In, Out]], error: BaseException) -> None:
    for entry in entries:
        if not entry.future.done():
            entry.future.set_exception(error)
