"""How many calls may run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter

from twinlens.server.core.errors import Code, ServiceError

_RETRY_AFTER_S = 0.25


class CallPlaces:
    """Refuses calls beyond a number, and says when to try again; gRPC's own limit does not.

    Args:
        most: How many at a time.
        refused: Counts those it refuses.
    """

    def __init__(self, most: int, refused: Counter | None = None) -> None:
        self._most = most
        self._refused = refused
        self._running = 0

    @property
    def running(self) -> int:
        """How many run now."""
        return self._running

    @contextmanager
    def one(self) -> Iterator[None]:
        """A place, while a call runs.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED if there is none.
        """
        if self._running >= self._most:
            if self._refused is not None:
                self._refused.inc()
            raise ServiceError(
                Code.RESOURCE_EXHAUSTED,
                f"the server is at {self._running} calls already; try again in a moment",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
