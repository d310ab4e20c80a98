"""How fast items come out of something that works on them."""

from __future__ import annotations

import math


class Outflow:
    """The rate of the last moments in which there was work, older ones weighing less.

    Args:
        memory_s: How far back it looks.
    """

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._seen_s = 0.0
        self._out = 0.0
        self.busy_s = 0.0

    @property
    def per_s(self) -> float:
        """Items a second; 0 where none came out yet."""
        return self._out / self.busy_s if self.busy_s else 0.0

    def advance(self, now_s: float, *, busy: bool) -> None:
        """Ages what was counted; time without work says nothing of how fast it can be.

        Args:
            now_s: A clock that only goes forward.
            busy: Whether there was work until now.
        """
        if busy:
            kept = math.exp(-(now_s - self._seen_s) / self._memory_s)
            self._out *= kept
            self.busy_s = self.busy_s * kept + self._memory_s * (1.0 - kept)
        self._seen_s = now_s

    def came_out(self, items: int) -> None:
        """Counts what came out just now."""
        self._out += items

    def wait_s(self, items: float) -> float:
        """How long until so many came out; where none did yet, as long again as that."""
        return items / self.per_s if self._out else self.busy_s
