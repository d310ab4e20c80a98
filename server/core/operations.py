"""Long work on whole collections, beside the calls: each has a thread of its own, and a few may run at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from prometheus_client import Counter

from twinlens.index.interruption import abandonable
from twinlens.index.thread_priority import yield_to_searches
from twinlens.server.core.errors import Code, ServiceError

T = TypeVar("T")

_RETRY_AFTER_S = 10.0


class OperationRunner:
    """Runs what takes minutes, without taking a thread from searches and writes.

    Args:
        most: How many at a time; one more is refused rather than made to wait without a word.
        refused: Counts those it refuses.
    """

    def __init__(self, most: int, refused: Counter | None = None) -> None:
        self._most = most
        self._refused = refused
        self._running = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Does one piece of work. It goes on to its end where the caller hangs up.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when too many operations run.
        """
        self._begin()
        executor = ThreadPoolExecutor(1, thread_name_prefix="twinlens-operation")
        future = self._started(executor, work)
        future.add_done_callback(self._ended)
        executor.shutdown(wait=False)
        return await asyncio.shield(future)

    async def stream(self, begin: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """What an iterator yields, each next one made while the one before is on its way.

        Where the caller hangs up, the iterator is closed as soon as the step it is at ends.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when too many operations run.
        """
        self._begin()
        loop = asyncio.get_running_loop()
        # It reads a lot and holds no lock for long, so it may well be slow. `run` is for what writers could wait for.
        executor = ThreadPoolExecutor(1, thread_name_prefix="twinlens-operation", initializer=yield_to_searches)
        end = object()
        iterator: Iterator[T] | None = None
        gone = threading.Event()

        def step() -> object:
            nonlocal iterator
            with abandonable(gone.is_set):
                if iterator is None:
                    iterator = begin()
                return next(iterator, end)

        def stop() -> None:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

        coming = self._started(executor, step)
        try:
            while (value := await asyncio.shield(coming)) is not end:
                coming = loop.run_in_executor(executor, step)
                yield cast("T", value)
        finally:
            gone.set()
            # The thread does one thing after the other, so this comes after the step it may be at.
            stopped = loop.run_in_executor(executor, stop)
            stopped.add_done_callback(self._ended)
            executor.shutdown(wait=False)
            await asyncio.shield(asyncio.gather(coming, stopped, return_exceptions=True))

    def _begin(self) -> None:
        if self._running >= self._most:
            if self._refused is not None:
                self._refused.inc()
            raise ServiceError(
                Code.RESOURCE_EXHAUSTED,
                f"the server runs {self._running} long operations already; try again when one has ended",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._running += 1

    def _started(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
        try:
            return asyncio.get_running_loop().run_in_executor(executor, work)
        except BaseException:  # no thread to be had: the place is free again
            self._running -= 1
            raise

    def _ended(self, work: asyncio.Future[Any]) -> None:
        self._running -= 1
        if not work.cancelled():
            work.exception()  # whoever waited has it; where nobody did any more, it is not to be complained of
