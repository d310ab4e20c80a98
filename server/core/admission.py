"""Admission: how much interactive work may be inside the server at once, in items and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twinlens.server.core.errors import Code, ServiceError

_RETRY_AFTER_S = 0.25


class Admission:
    """Refuses at once what does not fit. A request that is alone is always admitted.

    Bulk work is not counted here: streams of items wait for their turn instead of being refused.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items = 0
        self._bytes = 0

    @property
    def items(self) -> int:
        """Items inside now."""
        return self._items

    @contextmanager
    def admit(self, items: int, size_bytes: int) -> Iterator[None]:
        """Holds room for a request while it is worked on.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when the server is full.
        """
        full = self._items + items > self._max_items or self._bytes + size_bytes > self._max_bytes
        if full and self._items:
            raise ServiceError(
                Code.RESOURCE_EXHAUSTED,
                f"the server is full ({self._items} items are being worked on); try again in a moment",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._items += items
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._items -= items
            self._bytes -= size_bytes
