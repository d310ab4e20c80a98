"""A rate limit that allows for bursts."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """So many calls a second, and as many at once as came in a second without any.

    Args:
        per_s: Calls a second, above 0.
        clock: Seconds that only go on.
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self._most = max(1.0, per_s)
        self._clock = clock
        self._left = self._most
        self._at_s = clock()

    def take(self) -> float:
        """Takes one call: 0 where that is allowed, otherwise after how many seconds it will be."""
        self._fill()
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self.per_s

    def owe(self) -> float:
        """Takes one call in any case, and returns how many seconds to wait before it is made."""
        self._fill()
        self._left -= 1.0
        return max(0.0, -self._left / self.per_s)

    def _fill(self) -> None:
        now_s = self._clock()
        self._left = min(self._most, self._left + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
