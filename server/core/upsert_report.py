"""What became of a stream of items."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinlens.index.ids import MAX_ITEM_ID_BYTES
from twinlens.server.core.errors import ItemFailure, invalid_argument
from twinlens.server.core.incoming import Incoming

# What a failure takes beside its id and its message: a position, a reason, and their tags and lengths.
_FAILURE_BYTES = 32


@dataclass(frozen=True, slots=True)
class NotStored:
    """An item that was not stored, and why; an id that is too long to be one is cut short."""

    position: int
    id: str
    failure: ItemFailure


@dataclass(slots=True)
class UpsertReport:
    """What became of a stream.

    Attributes:
        max_failure_bytes: What the failures may take, for a stream has no end.
        stored: How many items are on disk.
        truncated: How many captions were cut.
        failures: The items that are not stored.
    """

    max_failure_bytes: int
    stored: int = 0
    truncated: int = 0
    failures: list[NotStored] = field(default_factory=list)
    _failure_bytes: int = field(default=0, init=False, repr=False)

    def fail(self, item: Incoming, failure: ItemFailure) -> None:
        """Notes an item that is not stored.

        Raises:
            ServiceError: INVALID_ARGUMENT where these are more than a reply can tell.
        """
        told = item.id if len(item.id.encode()) <= MAX_ITEM_ID_BYTES else f"{item.id[:57]}..."
        self.failures.append(NotStored(item.position, told, failure))
        self._failure_bytes += len(told.encode()) + len(failure.message.encode()) + _FAILURE_BYTES
        if self._failure_bytes > self.max_failure_bytes:
            raise invalid_argument(
                f"{len(self.failures)} items of the stream cannot be stored, more than a reply can tell; the last: "
                f"{failure.message} (what is stored already stays)"
            )
