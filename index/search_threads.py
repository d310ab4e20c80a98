"""How many threads all searches together may use."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from twinlens.index.faiss_library import import_faiss

_of_thread = threading.local()


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
        self._making = threading.Lock()
        self._free: queue.SimpleQueue[None] | None = None  # written in C: searches wait at it for microseconds

    @property
    def limit(self) -> int:
        """How many threads there are."""
        if self._limit is None:
            # Asked once: OpenMP keeps the number per thread, and `take` is about to change it.
            self._limit = int(import_faiss().omp_get_max_threads())
        return self._limit

    def take(self, wanted: int = 1) -> AbstractContextManager[int]:
        """Waits for a free thread and lets FAISS use as many as are free, within a block.

        Not re-entrant: within the block the thread must not take more.

        Args:
            wanted: More would be of no use; at least one is always given.

        Returns:
            Gives how many it got.
        """
        return _Taken(self._free or self._made(), wanted)

    @contextmanager
    def beside(self) -> Iterator[int]:
        """Lets FAISS use as many threads as the budget has, without taking them: for long work in the background.

        Searches would have to wait for its end otherwise; so the system divides the CPUs among them.

        Yields:
            How many there are.
        """
        before = import_faiss().omp_get_max_threads()
        _set_threads(self.limit)
        try:
            yield self.limit
        finally:
            _set_threads(before)

    def _made(self) -> queue.SimpleQueue[None]:
        with self._making:
            if self._free is None:
                free: queue.SimpleQueue[None] = queue.SimpleQueue()
                for _ in range(self.limit):
                    free.put(None)
                self._free = free
            return self._free


class _Taken:
    """Some threads of a budget; a class, because every search makes one and a generator takes twice as long."""

    __slots__ = ("_free", "_taken", "_wanted")

    def __init__(self, free: queue.SimpleQueue[None], wanted: int) -> None:
        self._free = free
        self._wanted = wanted
        self._taken = 0

    def __enter__(self) -> int:
        self._free.get()
        taken = 1
        while taken < self._wanted:
            try:
                self._free.get_nowait()
            except queue.Empty:
                break
            taken += 1
        self._taken = taken
        _set_threads(taken)
        return taken

    def __exit__(self, *exception: object) -> None:
        for _ in range(self._taken):
            self._free.put(None)


def _set_threads(count: int) -> None:
    """Tells OpenMP, which keeps the number for each thread that calls; others keep theirs."""
    if getattr(_of_thread, "count", None) != count:  # a call into FAISS lets other threads run first
        import_faiss().omp_set_num_threads(count)
        _of_thread.count = count
