"""A queue with lanes: interactive work overtakes bulk work, and bulk work never starves."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
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

    A lane may be divided into buckets, of entries that go together: then the bucket of the oldest entry goes first, and
    so none starves.

    While interactive and bulk work wait, every `bulk_every`-th turn is the bulk lane's.
    """

    def __init__(self, bulk_every: int = 4) -> None:
        # Entries carry the number under which they came, by which buckets are told apart in age.
        self._lanes: dict[Priority, dict[Hashable, deque[tuple[int, T]]]] = {priority: {} for priority in Priority}
        self._count = 0
        self._last_number = 0
        self._first_number = 0
        self._bulk_every = bulk_every
        self._turns_without_bulk = 0

    def __len__(self) -> int:
        return self._count

    def push(self, priority: Priority, entry: T, bucket: Hashable = 0, *, first: bool = False) -> None:
        """Appends to a lane; with `first`, in front of everything in it."""
        entries = self._lanes[priority].setdefault(bucket, deque())
        self._count += 1
        if first:
            self._first_number -= 1
            entries.appendleft((self._first_number, entry))
        else:
            self._last_number += 1
            entries.append((self._last_number, entry))

    def most_urgent(self) -> Priority | None:
        """The most urgent lane in which something waits, whoever's turn it is."""
        return next((priority for priority in Priority if self._lanes[priority]), None)

    def choose(self) -> Priority:
        """Whose turn it is, without taking it."""
        if self._lanes[Priority.URGENT]:
            return Priority.URGENT
        bulk, interactive = self._lanes[Priority.BULK], self._lanes[Priority.INTERACTIVE]
        if bulk and (not interactive or self._turns_without_bulk >= self._bulk_every - 1):
            return Priority.BULK
        return Priority.INTERACTIVE

    def oldest_bucket(self, priority: Priority) -> Hashable:
        """The bucket of the oldest entry of a lane; any where the lane is empty."""
        buckets = self._lanes[priority]
        if len(buckets) <= 1:
            return next(iter(buckets), 0)
        return min(buckets, key=lambda bucket: buckets[bucket][0][0])

    def pop(self, priority: Priority, bucket: Hashable | None = None) -> T | None:
        """Takes the oldest entry of a lane, or of one bucket of it; None where there is none."""
        buckets = self._lanes[priority]
        if bucket is None:
            bucket = self.oldest_bucket(priority)
        entries = buckets.get(bucket)
        if entries is None:
            return None
        _, entry = entries.popleft()
        if not entries:
            del buckets[bucket]
        self._count -= 1
        return entry

    def turn_taken(self, priority: Priority) -> None:
        """Tells whose turn it was."""
        waiting = priority is not Priority.BULK and bool(self._lanes[Priority.BULK])
        self._turns_without_bulk = self._turns_without_bulk + 1 if waiting else 0

    def drain(self) -> list[T]:
        """Takes everything."""
        drained = [
            entry for buckets in self._lanes.values() for _, entry in sorted(_all(buckets), key=lambda each: each[0])
        ]
        for buckets in self._lanes.values():
            buckets.clear()
        self._count = 0
        return drained


def _all(buckets: dict[Hashable, deque[tuple[int, T]]]) -> list[tuple[int, T]]:
    return [numbered for entries in buckets.values() for numbered in entries]
