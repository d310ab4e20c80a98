"""A queue with lanes: interactive work overtakes bulk work, and bulk work never starves."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Priority(IntEnum):
    """Which lane. URGENT is the canary's alone: a full server is not a broken one."""

    URGENT = 0
    INTERACTIVE = 1
    BULK = 2


class Lanes(Generic[T]):
    """First in, first out within a lane. Not thread-safe.

    While interactive and bulk work wait, every `bulk_every`-th turn is the bulk lane's.
    """

    def __init__(self, bulk_every: int = 4) -> None:
        self._lanes: dict[Priority, deque[T]] = {priority: deque() for priority in Priority}
        self._bulk_every = bulk_every
        self._turns_without_bulk = 0

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def push(self, priority: Priority, entry: T) -> None:
        """Appends to a lane."""
        self._lanes[priority].append(entry)

    def choose(self) -> Priority:
        """Whose turn it is, without taking it."""
        if self._lanes[Priority.URGENT]:
            return Priority.URGENT
        bulk, interactive = self._lanes[Priority.BULK], self._lanes[Priority.INTERACTIVE]
        if bulk and (not interactive or self._turns_without_bulk >= self._bulk_every - 1):
            return Priority.BULK
        return Priority.INTERACTIVE

    def pop(self, priority: Priority) -> T | None:
        """Takes the oldest entry of a lane, or None."""
        lane = self._lanes[priority]
        return lane.popleft() if lane else None

    def turn_taken(self, priority: Priority) -> None:
        """Tells whose turn it was."""
        waiting = priority is not Priority.BULK and bool(self._lanes[Priority.BULK])
        self._turns_without_bulk = self._turns_without_bulk + 1 if waiting else 0

    def drain(self) -> list[T]:
        """Takes everything."""
        entries = [entry for lane in self._lanes.values() for entry in lane]
        for lane in self._lanes.values():
            lane.clear()
        return entries
