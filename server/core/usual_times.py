"""How long work of a kind usually takes, learned from what it took."""

from __future__ import annotations

from collections import deque

_REMEMBERED = 9
# As so many pieces counts one that was taken for stuck and was not: enough to say at once how long the next like it may
# take, few enough to be forgotten soon where it had hung and came back.
_LATE_COUNTS = 4


class UsualTimes:
    """The median of the latest pieces of work of each kind. Not thread-safe.

    One that took far longer than the others says nothing: the process may have been stopped meanwhile.
    """

    def __init__(self) -> None:
        self._latest: dict[str, deque[float]] = {}

    def of(self, kind: str) -> float:
        """Seconds; 0 where that is not known."""
        latest = self._latest.get(kind)
        return 0.0 if latest is None else sorted(latest)[(len(latest) - 1) // 2]

    @property
    def slowest(self) -> float:
        """Of the kind that takes longest; 0 where nothing is known."""
        return max((self.of(kind) for kind in self._latest), default=0.0)

    def note(self, kind: str, took_s: float, *, late: bool = False) -> None:
        """Learns from a piece; `late`: it was taken for stuck and was not."""
        if late:
            self._latest[kind] = deque([took_s] * _LATE_COUNTS, _REMEMBERED)
        else:
            self._latest.setdefault(kind, deque(maxlen=_REMEMBERED)).append(took_s)
