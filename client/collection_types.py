"""What a client tells of collections and of operations on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from twinlens.client.types import Item, Modality

IndexKind: TypeAlias = Literal["auto", "flat", "hnsw", "ivf_flat", "ivf_pq"]


@dataclass(frozen=True, slots=True)
class IndexState:
    """One of the indexes of a collection: that of the pictures' vectors, or that of the captions'.

    Attributes:
        modality: Whose vectors.
        kind: What lies over the merged ones; for "auto" what was chosen.
        merged_count: Vectors merged into it, with those replaced or deleted since.
        pending_count: Vectors written since the last merge.
        hidden_count: Merged vectors that were replaced or deleted since.
        merging: A merge is running.
        merge_time: When the last merge ended well; None before the first.
        merge_s: How long it took, in seconds.
        merge_error: Why the latest attempt failed; empty where it did not.
        recall: recall@10 of a sample of recent queries against exact search; None before the first were compared.
        recall_query_count: How many were compared.
    """

    modality: Modality
    kind: IndexKind
    merged_count: int
    pending_count: int
    hidden_count: int
    merging: bool
    merge_time: datetime | None
    merge_s: float
    merge_error: str
    recall: float | None
    recall_query_count: int


@dataclass(frozen=True, slots=True)
class CollectionBytes:
    """What a collection takes: database, files of indexes, pictures on disk, and indexes in memory."""

    database: int = 0
    indexes: int = 0
    images: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """Vectors of one space for the items of a collection; one generation is active."""

    number: int
    space_id: str
    dimension: int
    active: bool
    item_count: int
    create_time: datetime


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection, its counts and the state of its indexes.

    Attributes:
        variants: What computed its vectors, such as "image int8 on cpu, text fp32 on cpu"; empty where it was not
            recorded.
        index_kind: The kind that was asked for.
        damage: Why it cannot be used; nothing else but `id` is then known. It can be deleted, or restored.
    """

    id: str
    space_id: str
    dimension: int
    item_count: int
    image_vector_count: int
    text_vector_count: int
    create_time: datetime
    variants: tuple[str, ...] = ()
    index_kind: IndexKind = "auto"
    indexes: tuple[IndexState, ...] = ()
    bytes: CollectionBytes = field(default_factory=CollectionBytes)
    generations: tuple[Generation, ...] = ()
    metadata_indexes: tuple[str, ...] = ()
    damage: str = ""


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """How far an operation is: `done` of `total` of a step; a total of 0 is not known."""

    step: str
    done: int
    total: int


ShowProgress: TypeAlias = Callable[[OperationProgress], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a collection that is not as it should be.

    Attributes:
        part: "database", "vectors", "pictures", "index" or "search".
        subject: The item or file it is about; empty where it is about the whole.
        message: What is wrong and, where it helps, what to do.
    """

    part: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup of a collection.

    Attributes:
        total_bytes: What it takes, with pictures that it shares with other backups.
        missing_image_count: Pictures that were lost or damaged in the collection already, so that they could not be
            copied.
    """

    id: str
    collection: str
    space_id: str
    item_count: int
    total_bytes: int
    create_time: datetime
    missing_image_count: int = 0


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Items that look or read alike, linked by cosines of at least the threshold.

    Attributes:
        ids: Two or more, in the order in which they were first stored.
        score: The lowest of the items' cosines to what is nearest to each in the group.
    """

    ids: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class ExportedItem:
    """An item and its vectors, float32 of shape (d,); None where it has none, or none was asked for."""

    item: Item
    space_id: str
    image_vector: NDArray[np.float32] | None = field(default=None, repr=False)
    text_vector: NDArray[np.float32] | None = field(default=None, repr=False)
