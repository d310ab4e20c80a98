"""The one thread that may touch an index on a GPU."""

from __future__ import annotations

import queue
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from twinlens.index.kinds.exact import Rows, Scores
from twinlens.index.protocol import Vectors

Found = tuple[Scores, Rows]
SearchOnGpu = Callable[[Vectors, int, int], Found]
"""Queries, shape (q, d), how many are wanted, and an effort → scores and rows, both (q, wanted)."""

_MOST_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Asked:
    queries: Vectors
    wanted: int
    effort: int
    found: Future[Found] = field(default_factory=Future)


_Inbox = queue.SimpleQueue[_Asked | None]


class GpuThread:
    """Builds an index, searches it for whoever asks, and frees it, all in a thread of its own.

    Indexes on a GPU are not thread-safe in FAISS, nor are the resources they share, so each has its own of both:
    https://github.com/facebookresearch/faiss/wiki/Threads-and-asynchronous-calls. What is asked while a search runs is
    answered by the next one together, which a GPU does in hardly more time. The thread ends with this object.
    """

    def __init__(self, build: Callable[[], SearchOnGpu]) -> None:
        """Waits until the index is built.

        Args:
            build: Called in the thread; whatever it raises is raised here.
        """
        self._inbox: _Inbox = queue.SimpleQueue()
        built: Future[None] = Future()
        # Handed over, for a thread keeps its arguments, and what is built from is often no longer needed then.
        handed_over = [build]
        del build
        threading.Thread(target=_serve, args=(handed_over, built, self._inbox), name="index-gpu", daemon=True).start()
        self._end = weakref.finalize(self, self._inbox.put, None)
        built.result()

    def search(self, queries: Vectors, wanted: int, effort: int) -> Found:
        """Searches, from any thread.

        Raises:
            RuntimeError: the GPU failed.
        """
        asked = _Asked(queries, wanted, effort)
        self._inbox.put(asked)
        return asked.found.result()


def _serve(handed_over: list[Callable[[], SearchOnGpu]], built: Future[None], inbox: _Inbox) -> None:
    """Not a method: the thread must not keep alive what ends it."""
    try:
        search = handed_over.pop()()
    except BaseException as error:
        built.set_exception(error)
        return
    built.set_result(None)
    while (first := inbox.get()) is not None:
        waiting = [first]
        ended = False
        while len(waiting) < _MOST_AT_ONCE and not inbox.empty():
            asked = inbox.get()
            if asked is None:
                ended = True
                break
            waiting.append(asked)
        alike: defaultdict[tuple[int, int], list[_Asked]] = defaultdict(list)
        for asked in waiting:
            alike[asked.wanted, asked.effort].append(asked)
        for (wanted, effort), together in alike.items():
            _answer(search, together, wanted, effort)
        if ended:
            return


def _answer(search: SearchOnGpu, together: list[_Asked], wanted: int, effort: int) -> None:
    try:
        queries = together[0].queries if len(together) == 1 else np.concatenate([asked.queries for asked in together])
        scores, rows = search(queries, wanted, effort)
    except BaseException as error:
        for asked in together:
            asked.found.set_exception(error)
        return
    start = 0
    for asked in together:
        stop = start + len(asked.queries)
        asked.found.set_result((scores[start:stop], rows[start:stop]))
        start = stop
