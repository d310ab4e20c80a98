"""What a server asks of collections, wherever they live: on this machine's disk, or in a Milvus that servers share."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twinlens.index.catalog import DamagedCollection
from twinlens.index.item import Hit, Item, Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.export import Export
from twinlens.index.operations.steps import Backup, DuplicateGroup, Finding, Progress
from twinlens.index.stats import GenerationState, Stats


class CollectionLike(Protocol):
    """A named set of items; the methods are described at `Collection`.

    All may be called from any thread. What they return for is stored, and every later call sees it.
    """

    id: str

    @property
    def space_id(self) -> str:
        """Of the active vectors."""

    @property
    def version(self) -> str:
        """Another one after every change."""

    @property
    def dimension(self) -> int:
        """Of the active vectors."""

    @property
    def kind(self) -> Kind:
        """Which structure finds vectors, as it was asked for."""

    def upsert(self, items: Sequence[NewItem], *, space_id: str) -> builtins.list[str]:
        """Stores items and returns their ids."""

    def delete(self, ids: Sequence[str] = (), *, filter: str = "") -> int:  # noqa: A002 - the wire's word, as below
        """Removes items by id, or all that match; returns how many existed."""

    def get(self, id: str) -> Item:  # noqa: A002
        """One item."""

    def get_image(self, id: str) -> bytes:  # noqa: A002
        """The bytes of an item's picture."""

    def get_vector(self, id: str, modality: Modality) -> NDArray[np.float32]:  # noqa: A002
        """One active vector, shape (d,)."""

    def list(self, *, after: str = "", limit: int = 100, filter: str = "") -> builtins.list[Item]:  # noqa: A002
        """A page of items by id."""

    def count(self, filter: str = "") -> int:  # noqa: A002
        """How many items match."""

    def search(
        self,
        queries: NDArray[Any],
        *,
        modality: Modality,
        top_k: int,
        space_id: str,
        min_score: float | None = None,
        max_characters: int | None = None,
        exact: bool = False,
        filter: str = "",  # noqa: A002
        sample: bool = True,
    ) -> builtins.list[builtins.list[Hit]]:
        """The items with the highest cosine to each query, best first."""

    def stats(self) -> Stats:
        """Counts and states."""

    def iter_vectors(
        self, modality: Modality, *, batch: int = 1024
    ) -> Iterator[tuple[builtins.list[str], NDArray[np.float32]]]:
        """Active vectors with ids."""

    def iter_metadata(
        self, key: str, modality: Modality, *, batch: int = 1024
    ) -> Iterator[tuple[builtins.list[Any], NDArray[np.float32]]]:
        """Active vectors with what metadata has under a key."""

    def export(
        self,
        modalities: Sequence[Modality] = (),
        *,
        filter: str = "",  # noqa: A002
        batch: int = 256,
    ) -> Export:
        """All items that match, by id, with their active vectors."""

    def check(self) -> Iterator[Progress | Finding]:
        """What is not as it should be."""

    def duplicates(
        self, modality: Modality, *, threshold: float = 0.95, exact: bool | None = None
    ) -> Iterator[Progress | DuplicateGroup]:
        """Groups of items that are nearly alike."""

    def backup(self, to: str, *, backup: str = "") -> Iterator[Progress | Backup]:
        """Copies everything elsewhere."""

    def begin_generation(self, *, space_id: str, dimension: int) -> int:
        """Starts a generation, or goes on with one; returns its number."""

    def missing(self, generation: int, *, limit: int) -> builtins.list[Item]:
        """Items that a generation has not dealt with."""

    def write_vectors(self, generation: int, vectors: Mapping[str, Mapping[Modality, NDArray[Any]]]) -> None:
        """Stores vectors of a generation by item id."""

    def activate(self, generation: int) -> None:
        """Makes a complete generation the active one."""

    def drop_generation(self, generation: int) -> None:
        """Removes a generation."""

    def generations(self) -> builtins.list[GenerationState]:
        """All generations by number."""

    def merge(self, *, kind: Kind | None = None, wait: bool = True) -> None:
        """Builds the index anew."""

    def add_metadata_index(self, path: str) -> str:
        """Makes filters on a path faster."""

    def remove_metadata_index(self, path: str) -> None:
        """Removes what `add_metadata_index` made."""

    def metadata_indexes(self) -> builtins.list[str]:
        """Paths that have an index."""

    def close(self) -> None:
        """Ends the use of it."""


class CatalogLike(Protocol):
    """Collections by id; the methods are described at `Catalog`."""

    def create(
        self,
        id: str,  # noqa: A002
        *,
        space_id: str,
        dimension: int,
        kind: Kind | None = None,
    ) -> CollectionLike:
        """Makes an empty collection."""

    def get(self, id: str) -> CollectionLike:  # noqa: A002
        """The collection of that id."""

    def opened(self, id: str) -> CollectionLike | None:  # noqa: A002
        """The same where that takes no waiting; else None."""

    def list(self, *, after: str = "", limit: int = 100) -> Sequence[CollectionLike]:
        """A page of collections by id."""

    def entries(self, *, after: str = "", limit: int = 100) -> Sequence[CollectionLike | DamagedCollection]:
        """A page of collections by id, with those that cannot be opened."""

    def delete(self, id: str) -> None:  # noqa: A002
        """Removes a collection with everything in it."""

    def restore(
        self,
        root: str,
        backup: str,
        *,
        id: str = "",  # noqa: A002
        replace: bool = False,
    ) -> Iterator[Any]:
        """Makes a collection of a backup: yields progress, and last the collection."""

    def close(self) -> None:
        """Closes all collections."""
