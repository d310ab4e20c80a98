"""Work in threads whose results come in order, with few of them waiting: memory does not grow with the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def bounded_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in order.

    Unlike `Executor.map`, which reads all items at once, this takes an item only when one of the results has been used:
    at most four a thread are under way.

    Args:
        function: Called in threads.
        items: Read in the caller's thread.
        threads: How many.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(function, item)))
                if len(waiting) >= 4 * threads:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
