"""What a collection says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind


@dataclass(frozen=True, slots=True)
class LastMerge:
    """How merging went.

    Attributes:
        ended_s: When the last one ended well, in seconds since the epoch; None: there was none since it was opened.
        took_s: How long that took, in seconds.
        error: Why the latest attempt failed, on one line; empty where it did not.
    """

    ended_s: float | None = None
    took_s: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Recall:
    """How many of the ten nearest a sample of recent queries found.

    Attributes:
        value: recall@10 against exact search, from 0 to 1.
        queries: How many were compared.
        measured_s: When, in seconds since the epoch.
    """

    value: float
    queries: int
    measured_s: float


@dataclass(frozen=True, slots=True)
class IndexState:
    """The index of one modality of the active generation.

    Attributes:
        modality: Whose vectors.
        kind: What lies over the merged ones; never `auto`.
        merged: Vectors merged into it, with those replaced or deleted since.
        pending: Vectors written since the last merge.
        hidden: Merged vectors that were replaced or deleted since.
        memory_bytes: What it keeps in memory; files that are only mapped do not count.
        merging: A merge is running.
        last_merge: How merging went.
        recall: Of the latest audit; None before the first.
    """

    modality: Modality
    kind: Kind = Kind.FLAT
    merged: int = 0
    pending: int = 0
    hidden: int = 0
    memory_bytes: int = 0
    merging: bool = False
    last_merge: LastMerge = LastMerge()
    recall: Recall | None = None


@dataclass(frozen=True, slots=True)
class GenerationState:
    """A generation and how far it is filled. Times are seconds since the epoch."""

    number: int
    space_id: str
    dimension: int
    active: bool
    items: int
    created_s: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a collection takes, in bytes.

    Attributes:
        database: With its log.
        indexes: Files of merged vectors.
        pictures: Stored originals; 0 until they are measured, which is done in the background when first asked.
        memory: Of the indexes, without files that are only mapped.
    """

    database: int
    indexes: int
    pictures: int
    memory: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts, sizes and states of one collection.

    Attributes:
        id: What it is called.
        space_id: Of the active vectors.
        dimension: Of the active vectors.
        items: How many there are.
        image_vectors: Active ones.
        text_vectors: Active ones.
        created_s: When it was created, in seconds since the epoch.
        variants: What computed the active vectors, such as "image int8 on cpu, text fp32 on cpu"; several after a
            change of it.
        kind: The kind of index asked for.
        indexes: One for each modality.
        sizes: What it takes.
        generations: By number.
        metadata_indexes: Paths into metadata that are indexed for filters, in order.
    """

    id: str
    space_id: str
    dimension: int
    items: int
    image_vectors: int
    text_vectors: int
    created_s: float
    variants: tuple[str, ...] = ()
    kind: Kind = Kind.AUTO
    indexes: tuple[IndexState, ...] = ()
    sizes: Sizes = Sizes(0, 0, 0, 0)
    generations: tuple[GenerationState, ...] = ()
    metadata_indexes: tuple[str, ...] = ()
