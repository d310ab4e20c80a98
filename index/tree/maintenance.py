"""One thread that does in the background what all collections of a catalog leave to it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from twinlens.index.thread_priority import yield_to_searches

log = logging.getLogger(__name__)


class BackgroundWork(Protocol):
    """What a collection may leave for later."""

    def wait_s(self, now_s: float) -> float | None:
        """How long until there is something to do: 0 for at once; None: not before the next `wake`. Must be quick."""

    def run(self) -> None:
        """Does it, to its end or until the collection is closed."""


class Maintenance:
    """Runs what is due, one piece at a time, the longest untouched collection first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._works: list[BackgroundWork] = []  # those run last are at the end
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, work: BackgroundWork) -> None:
        """Runs this from now on whenever it is due."""
        with self._changed:
            if self._closed:
                return
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="index maintenance", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, work: BackgroundWork) -> None:
        """Runs this no more; does not wait for it."""
        with self._changed:
            if work in self._works:
                self._works.remove(work)

    def wake(self) -> None:
        """Says that something may have become due. The caller must hold no lock that `wait_s` takes."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Waits for what runs and ends the thread. Collections are closed before, which stops it quickly."""
        with self._changed:
            self._closed = True
            self._works.clear()
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
                soonest: float | None = None
                for work in self._works:
                    wait_s = work.wait_s(now_s)
                    if wait_s is None:
                        continue
                    if wait_s <= 0:
                        self._works.remove(work)
                        self._works.append(work)
                        return work
                    soonest = wait_s if soonest is None else min(soonest, wait_s)
                self._changed.wait(soonest)
            return None
