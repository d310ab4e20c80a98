"""A piece of work for a worker thread, and whoever waits for it on an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """What to do, and what to tell of it. All but `work` may be called from any thread.

    Attributes:
        work: Blocks until it is done.
        future: Of the event loop `loop`, which alone may touch it, but for asking whether it was cancelled.
        kind: Work of one kind takes about as long, by its size.
        size: How much there is to do; None: that says nothing.
    """

    work: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    kind: str = ""
    size: Callable[[], int] | None = None

    def succeed(self, result: object) -> None:
        """Tells the result, unless something was told before."""
        self._on_loop(lambda: None if self.future.done() else self.future.set_result(result))

    def fail(self, error: Exception) -> None:
        """Tells the failure, unless something was told before."""
        told = error
        if isinstance(error, StopIteration):  # a future cannot carry it
            told = RuntimeError("the work ended with StopIteration")
        self._on_loop(lambda: None if self.future.done() else self.future.set_exception(told))

    def withdraw(self) -> None:
        """Tells that it will not be done."""
        self._on_loop(self.future.cancel)

    def _on_loop(self, tell: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(tell)
        except RuntimeError:
            log.debug("the event loop closed before the result of a worker arrived")
