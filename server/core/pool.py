"""Worker threads for blocking work: decoding, tokenising, running a tower, SQLite and FAISS."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from twinlens.index.interruption import abandonable
from twinlens.server.core.lanes import Lanes, Priority

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class WorkerPool:
    """A fixed number of daemon threads fed by two priority lanes.

    Work whose caller went away before it began is skipped; work that began runs to its end, but for looking at every
    item of a collection, which ends early.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._lanes: Lanes[_Job] = Lanes()
        self._ready = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"twinlens-{name}-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """How much work has not begun."""
        with self._ready:
            return len(self._lanes)

    def submit(self, priority: Priority, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Queues `work(*args, **kwargs)`; await the returned future, cancel it to withdraw.

        Raises:
            RuntimeError: after `close`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        with self._ready:
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            self._lanes.push(priority, _Job(lambda: work(*args, **kwargs), future, loop))
            self._ready.notify()
        return future

    def close(self, wait_s: float | None = None) -> None:
        """Withdraws what has not begun and waits for what has, at most `wait_s` (None: as long as it takes)."""
        with self._ready:
            self._closed = True
            withdrawn = self._lanes.drain()
            self._ready.notify_all()
        for job in withdrawn:
            _deliver(job, job.future.cancel)
        give_up_s = None if wait_s is None else time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(None if give_up_s is None else max(0.0, give_up_s - time.monotonic()))
            if thread.is_alive():
                log.error("%s is stuck; it is left behind", thread.name)

    def _next(self) -> _Job | None:
        with self._ready:
            while not len(self._lanes):
                if self._closed:
                    return None
                self._ready.wait()
            lane = self._lanes.choose()
            job = self._lanes.pop(lane)
            self._lanes.turn_taken(lane)
            return job

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if job.future.cancelled():
                continue
            try:
                with abandonable(job.future.cancelled):
                    result = job.work()
            except Exception as error:
                _deliver(job, _settler(job.future, error=error))
            else:
                _deliver(job, _settler(job.future, result=result))
            del job  # pictures are large: do not hold one while waiting for the next


def _settler(
    future: asyncio.Future[Any], *, result: object = None, error: Exception | None = None
) -> Callable[[], None]:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return settle


def _deliver(job: _Job, settle: Callable[[], object]) -> None:
    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        log.debug("the event loop closed before the result of a worker arrived")
