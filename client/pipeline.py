"""A bounded pipeline: several batches under way at a time, results in order, constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], inputs: Iterable[T], *, workers: int) -> Iterator[R]:
    """Does `work` on each input in threads and yields the results in the order of the inputs.

    At most `workers` inputs are under way and as many results wait; the iterable is advanced no further, and in the
    caller's thread. The first error ends it at once: what has not begun is dropped, what has is not waited for (calls
    end when their client is closed).

    Args:
        work: Called in several threads at once.
        inputs: Read lazily.
        workers: How many at a time, at least 1.
    """
    pending: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="twinlens-client")
    try:
        for each in inputs:
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
            pending.append(pool.submit(work, each))
        while pending:
            yield pending.popleft().result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
