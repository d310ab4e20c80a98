"""What is done to a whole collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index import store
from twinlens.index.filters.filtering import Filtering
from twinlens.index.item import Item, Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.backup import back_up
from twinlens.index.operations.check import check_collection
from twinlens.index.operations.duplicates import duplicate_groups
from twinlens.index.operations.export import Export, export
from twinlens.index.operations.statistics import collection_stats, generation_states
from twinlens.index.operations.steps import Backup, DuplicateGroup, Finding, Progress
from twinlens.index.paging import check_limit
from twinlens.index.refill import Refill
from twinlens.index.state import CollectionState
from twinlens.index.stats import GenerationState, Stats
from twinlens.index.vector_pages import vector_pages


class CollectionOperations:
    """The part of a `Collection` that is not about single items: its state, copies, generations and indexes."""

    def __init__(self, collection_id: str, state: CollectionState) -> None:
        """Takes over the state.

        Args:
            collection_id: What the collection is called.
            state: Open.
        """
        self.id = collection_id
        self._state = state
        self._refill = Refill(state)
        self._filtering = Filtering(state)

    def stats(self) -> Stats:
        """Counts, sizes, and how the indexes and generations are."""
        return collection_stats(self._state, self.id)

    def check(self) -> Iterator[Progress | Finding]:
        """Compares everything stored with everything else, changing nothing; reads and writes go on meanwhile.

        Yields:
            How far it is, and what is not as it should be; no finding means that all is well.
        """
        return check_collection(self._state)

    def duplicates(
        self, modality: Modality, *, threshold: float = 0.95, exact: bool | None = None
    ) -> Iterator[Progress | DuplicateGroup]:
        """Finds groups of items whose active vectors are nearly alike.

        Items stored or deleted meanwhile may or may not be among them.

        Args:
            modality: Which vectors to compare.
            threshold: Lowest cosine that links two items, above 0 to 1.
            exact: Compare all with all (time grows with the square of their number), or search with the index, which
                may miss a link; None: all with all while they are few.

        Yields:
            How far it is, and then the groups, largest first.

        Raises:
            InvalidArgument: the threshold or the modality is not allowed.
        """
        return duplicate_groups(self._state, modality, threshold=threshold, exact=exact)

    def backup(self, to: str, *, backup: str = "") -> Iterator[Progress | Backup]:
        """Copies everything to a folder or object store, as it is now; reads and writes go on meanwhile.

        Pictures lie beside the backups and are shared by all that are at one place. A backup counts once it is
        complete: what an interrupted one left is none, and is cleared by the next of that id.

        Args:
            to: Where backups are kept: a folder or an fsspec address (`s3://…`).
            backup: Its id, 1 to 128 of a-z, 0-9, "-" and "_"; empty: the collection's id and the time.

        Yields:
            How far it is, and last the backup.

        Raises:
            BackupExists: there is one of that id.
            InvalidArgument: the id is not allowed.
            CorruptCollection: the database is damaged, or a vector in it. Lost and damaged pictures are only counted.
            CollectionError: the place cannot be written.
        """
        return back_up(self._state, self.id, to, backup=backup)

    def iter_vectors(
        self,
        modality: Modality,
        *,
        batch: int = 1024,
    ) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Goes through the active vectors, as ids and an array of shape (n, d) at a time.

        Items stored or deleted meanwhile may or may not be among them. The generation is the one active at the start.
        """
        for ids, vectors in vector_pages(self._state, modality, batch, "id"):
            yield list(ids), vectors

    def iter_metadata(
        self,
        key: str,
        modality: Modality,
        *,
        batch: int = 1024,
    ) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
        """As `iter_vectors`, but instead of the id what the item's metadata has under a key; None where nothing."""
        for texts, vectors in vector_pages(self._state, modality, batch, "metadata"):
            yield store.values_under(texts, key, self._state.name), vectors

    def export(
        self,
        modalities: Sequence[Modality] = (),
        *,
        filter: str = "",  # noqa: A002
        batch: int = 256,
    ) -> Export:
        """Goes through all items that match, by id, with their active vectors of these modalities.

        Items stored or deleted meanwhile may or may not be among them. The generation is the one active at the start;
        the pages raise InvalidArgument should it be dropped before they end.

        Raises:
            InvalidFilter: the filter cannot be read.
        """
        return export(self._state, modalities, self._filtering.where(filter), check_limit(batch))

    def begin_generation(self, *, space_id: str, dimension: int) -> int:
        """Starts a generation to be filled beside the active one, or goes on with one of that space.

        Returns:
            Its number. Where that space is the active one already, its number, with nothing missing.

        Raises:
            InvalidArgument: the dimension is below 1, or not that of the space.
        """
        return self._refill.begin(space_id=space_id, dimension=dimension)

    def missing(self, generation: int, *, limit: int) -> list[Item]:
        """Items that a generation has not dealt with, at most `limit`; empty once there are none.

        One filler at a time: `write_vectors` takes its vectors to be made from the items as last returned here.
        """
        return self._refill.missing(generation, limit=limit)

    def write_vectors(self, generation: int, vectors: Mapping[str, Mapping[Modality, NDArray[Any]]]) -> None:
        """Stores vectors of a generation for items that exist already.

        Items deleted meanwhile are ignored, and so are those replaced since `missing` named them: these stay missing.

        Args:
            generation: Its number.
            vectors: Item id to vectors of shape (d,) per modality; empty where there is nothing to embed.

        Raises:
            InvalidArgument: no such generation.
            InvalidVector: a vector is unusable.
        """
        self._refill.write(generation, vectors)

    def activate(self, generation: int) -> None:
        """Makes a complete generation the active one, in one step; the one before stays until it is dropped.

        Raises:
            InvalidArgument: no such generation, or items are missing in it.
        """
        self._refill.activate(generation)

    def drop_generation(self, generation: int) -> None:
        """Removes a generation and its vectors.

        Raises:
            InvalidArgument: no such generation, or it is the active one.
        """
        self._refill.drop(generation)

    @property
    def kind(self) -> Kind:
        """Which structure finds the merged vectors, as it was asked for."""
        return self._state.kind

    def merge(self, *, kind: Kind | None = None, wait: bool = True) -> None:
        """Builds the index of all active vectors anew, while searches go on with the one before.

        Args:
            kind: The structure to have from now on, kept with the collection; None: the one it has.
            wait: Return when it is done, and raise what stopped it; otherwise leave it to the background.

        Raises:
            InvalidArgument: there is no such kind.
            CollectionError: the disk is full or read-only; the index before goes on serving.
        """
        self._state.merge(kind=kind, wait=wait)

    def generations(self) -> list[GenerationState]:
        """All generations by number, and how far each is filled."""
        return generation_states(self._state)

    def add_metadata_index(self, path: str) -> str:
        """Makes filters on a path into metadata faster, for a little more work of every write.

        Args:
            path: Such as `camera.lens`.

        Returns:
            The path as it is listed.

        Raises:
            InvalidArgument: it is no such path, or there are 16 indexes already.
        """
        return self._filtering.add_index(path)

    def remove_metadata_index(self, path: str) -> None:
        """Removes what `add_metadata_index` made; filters find the same as before.

        Raises:
            InvalidArgument: there is none on that path; those there are named.
        """
        self._filtering.remove_index(path)

    def metadata_indexes(self) -> list[str]:
        """Paths into metadata that have an index."""
        return self._filtering.indexes()
