"""A cache of what takes work to make: bounded by bytes, made once however many ask at the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class SharedCache(Generic[V]):
    """Least recently used values, bounded by bytes. Equal requests at the same time make a value once.

    Args:
        size: How many bytes a value takes.
        max_bytes: How many all of them may take; a single larger value is made but not kept.
    """

    def __init__(self, size: Callable[[V], int], max_bytes: int) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._kept: OrderedDict[str, V] = OrderedDict()
        self._running: dict[str, asyncio.Task[V]] = {}

    def __contains__(self, key: str) -> bool:
        """Whether the value of a key is kept: `get` returns it at once."""
        return key in self._kept

    async def get(self, key: str, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The value of a key, kept, being made, or made now.

        The work belongs to the cache: it goes on when the caller who asked first goes away, so it must not have that
        caller's deadline. A failure is not kept; everybody who waits for it gets it.
        """
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(make())
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stops what still runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _finished(self, key: str, task: asyncio.Task[V]) -> None:
        self._running.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        size = self._size(task.result())
        if size > self._max_bytes:  # it would drive out all others and then itself
            return
        self._kept[key] = task.result()
        self._size_bytes += size
        while self._size_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._size_bytes -= self._size(dropped)
