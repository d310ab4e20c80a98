"""What long operations on a collection hand out while they go on.

They are iterators: each step is done when it is asked for, and closing the iterator stops the operation, which then
leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an operation is.

    Attributes:
        step: What is being done, in a word or two, such as "pictures".
        done: How much of the step is done.
        total: How much there is to do; 0 where it is not known.
    """

    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        part: "database", "vectors", "pictures", "index" or "search".
        subject: The item or file it is about; empty where it is about the whole.
        message: What is wrong and, where it helps, what to do.
    """

    part: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Items linked, directly or over others of the group, by a cosine of at least the threshold.

    Attributes:
        ids: Two or more, in the order in which the items were first stored.
        score: The lowest of the items' cosines to what is nearest to each in the group.
    """

    ids: Sequence[str]
    score: float


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup of a collection.

    Attributes:
        id: What it is called at its place.
        collection: What it was made of.
        space_id: Of the vectors that were active.
        items: How many items are in it.
        size_bytes: What it takes, with pictures that it shares with other backups.
        created_s: When it was begun: everything acknowledged until then is in it. Seconds since the epoch.
        missing_pictures: How many were lost or damaged already, so that they could not be copied.
    """

    id: str
    collection: str
    space_id: str
    items: int
    size_bytes: int
    created_s: float
    missing_pictures: int = 0
