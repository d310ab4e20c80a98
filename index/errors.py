"""What can be wrong with a collection or a request to it. Messages are one line and safe to show to a user."""

from __future__ import annotations


class CollectionError(Exception):
    """Base of everything the index room raises on purpose."""


class CollectionNotFound(CollectionError):  # noqa: N818
    """No collection of that id."""


class CollectionExists(CollectionError):  # noqa: N818
    """There is one of that id already."""


class ItemNotFound(CollectionError):  # noqa: N818
    """No item of that id, or it has no vector of that modality."""


class InvalidVector(CollectionError, ValueError):  # noqa: N818
    """The vector is zero, not finite, or of another dimension; both sides are named."""


class InvalidArgument(CollectionError, ValueError):  # noqa: N818
    """A malformed id, a top_k below 1, metadata that is not JSON."""


class SpaceMismatch(CollectionError):  # noqa: N818
    """Vectors of one space were brought to a collection of another; both are named."""


class CorruptCollection(CollectionError):  # noqa: N818
    """The database is damaged or of a newer schema; what and where is named."""


class CollectionBusy(CollectionError):  # noqa: N818
    """Another process holds this data folder."""


class Abandoned(CollectionError):  # noqa: N818
    """Whoever asked is gone; nothing has changed."""


class PlaceUnavailable(CollectionError):  # noqa: N818
    """The folder or object store that keeps backups or pictures cannot be read or written; it is named.

    Attributes:
        holds: What it keeps.
    """

    def __init__(self, message: str, holds: str) -> None:
        super().__init__(message)
        self.holds = holds


class EngineUnavailable(CollectionError):  # noqa: N818
    """The vector engine's package is not installed; the message names the extra."""


class EngineUnreachable(EngineUnavailable):
    """The vector engine runs elsewhere and does not answer; trying again later may help."""


class DamagedSegment(CollectionError):  # noqa: N818
    """A file of merged vectors is missing, cut off or changed; it is named. It can be built again from the database."""


class MergeStopped(CollectionError):  # noqa: N818
    """Merging was stopped before it was done; nothing has changed."""


class BackupNotFound(CollectionError):  # noqa: N818
    """No complete backup of that id."""


class BackupExists(CollectionError):  # noqa: N818
    """There is a backup of that id already."""


class BackupBusy(BackupExists):
    """Another call writes or deletes that backup."""


class DamagedBackup(CollectionError):  # noqa: N818
    """A file of a backup is missing, cut off or changed; it is named."""


class NotOffered(CollectionError):  # noqa: N818
    """Collections of this engine cannot do that; the message says what to do instead."""
