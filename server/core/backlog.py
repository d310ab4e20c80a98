"""How long new work would wait behind what is inside already."""

from __future__ import annotations

from twinlens.server.core.outflow import Outflow

# For so long after the backlog formed it may be a burst, which goes by itself; CoDel's interval.
_BURST_S = 0.1
# How far back the rate looks, and how much of that must have been seen before a deadline is held against it.
_MEMORY_S = 2.0
_TRUSTED_S = 0.5
_RETRY_S = (0.05, 5.0)
# A few callers that bring a batch each shall not be turned away where many that bring one item are let in.
_ITEMS_A_CALL = 4


class Backlog:
    """Calls of one kind that are inside, and how fast their items come out.

    By Little's law, who comes now waits for what is inside divided by the rate at which it comes out. Up to `floor`
    calls nothing is refused: so many keep decoders and towers in full batches. What is above that and still there after
    a moment is no burst but a queue that stands, which makes everybody wait and the work no faster (Nichols and
    Jacobson, Controlling Queue Delay, 2012): then who would wait longer than `max_wait_s` is refused.

    Args:
        floor: In calls; and in items, when each of them brings a few.
        max_wait_s: See above.
    """

    def __init__(self, floor: int, max_wait_s: float) -> None:
        self._calls = 0
        self._items = 0
        self._floor = floor
        self._floor_items = _ITEMS_A_CALL * floor
        self._max_wait_s = max_wait_s
        self._since_s: float | None = None
        self._outflow = Outflow(_MEMORY_S)

    def refusal(self, items: int, now_s: float, left_s: float | None = None) -> float | None:
        """When a call should try again, in seconds; None: come in.

        Args:
            items: What it brings.
            now_s: A clock that only goes forward; the same for all methods.
            left_s: How long the caller waits at most.
        """
        self._advance(now_s)
        if self._since_s is None or now_s - self._since_s < _BURST_S or not self._calls:
            return None
        ahead = self._items + items
        rate = self._outflow.per_s
        in_time = left_s is None or self._outflow.busy_s < _TRUSTED_S or ahead <= rate * left_s
        few = self._calls < self._floor and ahead <= self._floor_items
        soon = rate * self._max_wait_s
        if in_time and (few or ahead <= soon):
            return None
        most = soon if left_s is None else min(soon, rate * left_s)
        return retry_after_s((ahead - most) / rate if rate else None)

    def enter(self, items: int, now_s: float) -> None:
        """Lets a call in."""
        self._advance(now_s)
        self._calls += 1
        self._items += items
        if self._since_s is None and (self._calls >= self._floor or self._items >= self._floor_items):
            self._since_s = now_s

    def leave(self, items: int, now_s: float, *, served: bool) -> None:
        """Lets a call out; `served`: it was answered, not given up."""
        self._advance(now_s)
        self._calls -= 1
        self._items -= items
        if self._since_s is None:
            return
        if served:
            self._outflow.came_out(items)
        if 2 * self._calls < self._floor and 2 * self._items < self._floor_items:
            self._since_s = None

    def _advance(self, now_s: float) -> None:
        self._outflow.advance(now_s, busy=self._since_s is not None)


def retry_after_s(wait_s: float | None) -> float:
    """When to try again where room is expected after so long; None: nobody knows."""
    low, high = _RETRY_S
    return high if wait_s is None else min(high, max(low, wait_s))
