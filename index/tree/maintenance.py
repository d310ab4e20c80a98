"""One thread that does in the background what all collections of a catalog leave to it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from twinlens.index.thread_priority import yield_to_searches

log = logging.getLogger(__name__)

_AT_ONCE = float("-inf")
_NEVER = float("inf")


class BackgroundWork(Protocol):
    """What a collection may leave for later."""

    def wait_s(self, now_s: float) -> float | None:
        """How long until there is something to do: 0 for at once; None: not before the next `wake`. Must be quick.

        What is due earlier than was last said must be told by `wake`.
        """

    def run(self) -> None:
        """Does it, to its end or until the collection is closed."""


class Maintenance:
    """Runs what is due, one piece at a time, the longest untouched collection first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due_s: dict[BackgroundWork, float] = {}  # when to ask each again; those run last are at the end
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, work: BackgroundWork) -> None:
        """Runs this from now on whenever it is due."""
        with self._changed:
            if self._closed:
                return
            self._due_s[work] = _AT_ONCE
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="index maintenance", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, work: BackgroundWork) -> None:
        """Runs this no more; does not wait for it."""
        with self._changed:
            self._due_s.pop(work, None)

    def wake(self, work: BackgroundWork) -> None:
        """Says that this may have become due. The caller must hold no lock that its `wait_s` takes."""
        with self._changed:
            if work in self._due_s:
                self._due_s[work] = _AT_ONCE
                self._changed.notify_all()

    def close(self) -> None:
        """Waits for what runs and ends the thread. Collections are closed before, which stops it quickly."""
        with self._changed:
            self._closed = True
            self._due_s.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        yield_to_searches()
        while (work := self._next()) is not None:
            try:
                work.run()
            except Exception:  # the thread serves all collections
                log.exception("background work on a collection failed")

    def _next(self) -> BackgroundWork | None:
        """Waits until something is due; None once closed."""
        with self._changed:
            while not self._closed:
                now_s = time.monotonic()
                for work, due_s in self._due_s.items():  # a catalog may have thousands: only few are asked each time
                    if due_s > now_s:
                        continue
                    wait_s = work.wait_s(now_s)
                    if wait_s is not None and wait_s <= 0:
                        del self._due_s[work]
                        self._due_s[work] = _AT_ONCE
                        return work
                    self._due_s[work] = _NEVER if wait_s is None else now_s + wait_s
                soonest_s = min(self._due_s.values(), default=_NEVER)
                self._changed.wait(None if soonest_s == _NEVER else soonest_s - now_s)
            return None
