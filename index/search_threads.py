"""How many threads all searches together may use."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twinlens.index.faiss_library import import_faiss


class SearchThreads:
    """A budget that every search takes its OpenMP threads from and gives them back to.

    Small searches take one thread each and run side by side; a large batch takes what is free. So neither waits for the
    other while there is a thread to be had, and together they never use more than the budget.
    """

    def __init__(self, limit: int | None = None) -> None:
        """Makes a budget of which all is free.

        Args:
            limit: How many threads there are, from 1; None: as many as OpenMP would use.
        """
        self._limit = limit
        self._used = 0
        self._waiting = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """How many threads there are."""
        if self._limit is None:
            # Asked once: OpenMP keeps the number per thread, and `take` is about to change it.
            self._limit = int(import_faiss().omp_get_max_threads())
        return self._limit

    @contextmanager
    def take(self, wanted: int = 1) -> Iterator[int]:
        """Waits for a free thread and lets FAISS use as many as are free, within this block.

        Not re-entrant: within the block the thread must not take more.

        Args:
            wanted: More would be of no use; at least one is always given.

        Yields:
            How many it got.
        """
        limit = self.limit
        with self._changed:
            while self._used >= limit:
                self._waiting += 1
                self._changed.wait()
                self._waiting -= 1
            taken = max(1, min(wanted, limit - self._used))
            self._used += taken
        try:
            self._set_threads(taken)  # OpenMP keeps it per thread: others keep theirs
            yield taken
        finally:
            with self._changed:
                self._used -= taken
                if self._waiting:
                    self._changed.notify_all()

    @contextmanager
    def beside(self) -> Iterator[int]:
        """Lets FAISS use as many threads as the budget has, without taking them: for long work in the background.

        Searches would have to wait for its end otherwise; so the system divides the CPUs among them.

        Yields:
            How many there are.
        """
        limit = self.limit
        before = import_faiss().omp_get_max_threads()
        self._set_threads(limit)
        try:
            yield limit
        finally:
            self._set_threads(before)

    @functools.cached_property
    def _set_threads(self) -> Callable[[int], None]:
        found: Callable[[int], None] = import_faiss().omp_set_num_threads
        return found
