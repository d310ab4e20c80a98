"""Measuring what stored pictures take: at once while they are few, in the background otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlens.index.errors import CollectionError

if TYPE_CHECKING:
    from twinlens.index.state import CollectionState

_FEW_ITEMS = 10_000  # a look at so many files takes a second at most


class PictureBytes:
    """What the maintenance thread does for one collection once somebody has asked."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state
        self._asked = False

    def known(self, items: int) -> int:
        """How many bytes there are; 0 until they are measured.

        Args:
            items: How many there are in the collection.
        """
        blobs = self._state.blobs
        if blobs.total_bytes is None and items <= _FEW_ITEMS:
            blobs.measure()
        if blobs.total_bytes is None and not self._asked:
            self._asked = True
            self._state.engines.maintenance.wake(self)
        return blobs.total_bytes or 0

    def wait_s(self, now_s: float) -> float | None:
        """How long until there is something to do; None: not before somebody asks."""
        del now_s
        return 0.0 if self._asked else None

    def run(self) -> None:
        """Measures, until the collection is about to close."""
        try:
            self._state.blobs.measure(self._state.closing.is_set)
        except CollectionError:  # the disk cannot be read: who asks again starts it again
            pass
        finally:
            self._asked = False
