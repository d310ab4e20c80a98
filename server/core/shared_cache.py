"""A cache of what takes work to make: bounded by bytes, made once however many ask at the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Making(Generic[V]):
    """A value that is being made, and how many wait for it."""

    task: asyncio.Task[V]
    waiting: int = 0


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
        self._making: dict[str, _Making[V]] = {}
        # Those that nobody waits for any more, but that have not ended yet, too.
        self._tasks: set[asyncio.Task[V]] = set()

    def __contains__(self, key: str) -> bool:
        """Whether the value of a key is kept: `get` returns it at once."""
        return key in self._kept

    async def get(self, key: str, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The value of a key, kept, being made, or made now.

        The work belongs to all who wait for it: it goes on when the caller who asked first goes away, so it must not
        have that caller's deadline, and is cancelled when the last one does. A failure is not kept; everybody who waits
        for it gets it.
        """
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = _Making(asyncio.create_task(make()))
            self._tasks.add(making.task)
            making.task.add_done_callback(lambda done: self._finished(key, done))
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting and not making.task.done():
                making.task.cancel()
                self._forget(key, making.task)  # who asks from now on does not get what was cancelled

    async def close(self) -> None:
        """Stops what still runs."""
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _forget(self, key: str, task: asyncio.Task[V]) -> None:
        making = self._making.get(key)
        if making is not None and making.task is task:
            del self._making[key]

    def _finished(self, key: str, task: asyncio.Task[V]) -> None:
        self._tasks.discard(task)
        self._forget(key, task)
        if task.cancelled() or task.exception() is not None or key in self._kept:
            return
        size = self._size(task.result())
        if size > self._max_bytes:  # it would drive out all others and then itself
            return
        self._kept[key] = task.result()
        self._size_bytes += size
        while self._size_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._size_bytes -= self._size(dropped)
