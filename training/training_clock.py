"""How long a run has trained, apart from the time it spent on looking at itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TrainingClock:
    """Counts on where a run that was interrupted stopped, and stands while the encoder is measured."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()
        self._before_s = 0.0
        self._looking_s = 0.0

    def start(self) -> None:
        """The first step is about to be taken."""
        self._start_s, self._looking_s = time.perf_counter(), 0.0

    def resume(self, seconds: float) -> None:
        """Counts on from what `seconds` said before."""
        self._before_s = seconds

    @property
    def seconds(self) -> float:
        """Of training so far."""
        return self._before_s + time.perf_counter() - self._start_s - self._looking_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Around a look."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._looking_s += time.perf_counter() - began_s
