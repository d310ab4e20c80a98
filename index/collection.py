"""A named set of items: the database is the truth, engines in memory make it fast."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index import store
from twinlens.index.engines import Engines
from twinlens.index.errors import InvalidArgument
from twinlens.index.filters.filtering import Filtering
from twinlens.index.item import Hit, Item, Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.backup import back_up
from twinlens.index.operations.check import check_collection
from twinlens.index.operations.duplicates import duplicate_groups
from twinlens.index.operations.export import Export, export
from twinlens.index.operations.statistics import collection_stats, generation_states
from twinlens.index.operations.steps import Backup, DuplicateGroup, Finding, Progress
from twinlens.index.paging import check_limit
from twinlens.index.reading import Reading
from twinlens.index.refill import Refill
from twinlens.index.state import CollectionState
from twinlens.index.stats import GenerationState, Stats
from twinlens.index.vector_pages import vector_pages
from twinlens.index.writing import Writing


class Collection:
    """Items with their vectors. Methods block, may be called from any thread, and what they return for is on disk.

    Every write commits to the database first and then changes the engines, one write at a time; searches go on
    meanwhile and see a vector before or after it, and after the write has returned always the new one.
    """

    def __init__(self, folder: Path, collection_id: str, *, engines: Engines, variant: str = "") -> None:
        """Opens a collection and loads its vectors; `Catalog` does this.

        Args:
            folder: Where it lies; nobody else may have it open.
            collection_id: What it is called.
            engines: What the collections of the catalog share.
            variant: What computes the vectors to come; kept with their generation.

        Raises:
            CorruptCollection: damaged, or of a newer schema.
            EngineUnavailable: the engine's package is not installed.
        """
        self.id = collection_id
        self._state = CollectionState(folder, f"collection {collection_id}", engines, variant)
        self._refill = Refill(self._state)
        self._filtering = Filtering(self._state)
        self._writing = Writing(self._state)
        self._reading = Reading(self._state, self._filtering)

    @property
    def space_id(self) -> str:
        """The space that the active vectors belong to."""
        with self._state.use():
            return self._state.current().generation.space_id

    @property
    def version(self) -> str:
        """Another one after every change of its items or of the active generation, and every time it is opened.

        What was made of the collection holds as long as the version read before it was made.
        """
        return self._state.version

    @property
    def dimension(self) -> int:
        """The length of the active vectors."""
        with self._state.use():
            return self._state.current().generation.dimension

    def upsert(self, items: Sequence[NewItem], *, space_id: str) -> builtins.list[str]:
        """Stores items, replacing all of those whose id is there already; all or none of them.

        In generations that are not active, a replaced item is missing again.

        Args:
            items: Of several with one id the last stays.
            space_id: The space their vectors belong to.

        Returns:
            Their ids, in order.

        Raises:
            SpaceMismatch: another space is active.
            InvalidArgument: an id, text or metadata breaks a rule.
            InvalidVector: a vector is unusable.
            CollectionError: the disk is full or read-only; nothing was stored.
        """
        return self._writing.upsert(items, space_id)

    def delete(self, ids: Sequence[str] = (), *, filter: str = "") -> int:  # noqa: A002 - the wire's word, as below
        """Removes items by id, or all that match a filter, and returns how many existed.

        Ids that do not exist are no error. By filter a thousand items are removed at a time, each lot durably; those
        that come to match meanwhile stay, and so do those that match no more when it is their turn.

        Raises:
            InvalidFilter: the filter cannot be read.
            InvalidArgument: both are given, or an id is not one.
        """
        if filter:
            if ids:
                raise InvalidArgument("items are deleted by their ids or by a filter, not by both")
            return self._filtering.delete(filter)
        return self._writing.delete(ids)

    def get(self, id: str) -> Item:  # noqa: A002 - the word that callers know it by
        """One item.

        Raises:
            ItemNotFound: there is none of that id.
        """
        return self._reading.item(id)

    def get_image(self, id: str) -> bytes:  # noqa: A002
        """The bytes of an item's picture, as they were stored.

        Raises:
            ItemNotFound: there is no such item, or it has no picture.
            CorruptCollection: the stored bytes are gone or changed.
        """
        return self._reading.image(id)

    def get_vector(self, id: str, modality: Modality) -> NDArray[np.float32]:  # noqa: A002
        """One active vector of an item, shape (d,).

        Raises:
            ItemNotFound: there is no such item, or it has no such vector.
        """
        return self._reading.vector(id, modality)

    def list(self, *, after: str = "", limit: int = 100, filter: str = "") -> builtins.list[Item]:  # noqa: A002
        """A page of the items that match, in the order of their ids, from the one behind `after`.

        Raises:
            InvalidFilter: the filter cannot be read.
        """
        return self._filtering.page(after, limit, filter)

    def count(self, filter: str = "") -> int:  # noqa: A002
        """How many items match; without a filter, how many there are.

        Raises:
            InvalidFilter: the filter cannot be read.
        """
        return self._filtering.count(filter)

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
        """Finds the items whose vectors have the highest cosine with each query.

        Args:
            queries: Shape (q, d), of any length but zero.
            modality: Which vectors to compare with.
            top_k: How many hits at most, from 1.
            space_id: The space the queries belong to.
            min_score: Leave out hits below this cosine.
            max_characters: Of the texts and metadata of all items found; what goes beyond is not even read.
            exact: Do without approximation, whatever the engine.
            filter: Only items that match may be found; blank: all.
            sample: Whether somebody asks; what a program asks to see that searching works says nothing of recall.

        Returns:
            Per query the hits, best first; ties in the order in which the items were first stored.

        Raises:
            SpaceMismatch: another space is active.
            InvalidVector: a query is unusable.
            InvalidArgument: top_k is below 1, or the items found are longer than `max_characters`.
            InvalidFilter: the filter cannot be read.
        """
        return self._reading.hits(
            queries,
            modality=modality,
            top_k=top_k,
            space_id=space_id,
            min_score=min_score,
            max_characters=max_characters,
            exact=exact,
            filter=filter,
            sample=sample,
        )

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
    ) -> Iterator[tuple[builtins.list[str], NDArray[np.float32]]]:
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
    ) -> Iterator[tuple[builtins.list[Any], NDArray[np.float32]]]:
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

    def missing(self, generation: int, *, limit: int) -> builtins.list[Item]:
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

    def generations(self) -> builtins.list[GenerationState]:
        """All generations by number, and how far each is filled."""
        return generation_states(self._state)

    def close(self) -> None:
        """Waits for running calls and closes the files; later calls raise CollectionNotFound."""
        self._state.close()

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

    def metadata_indexes(self) -> builtins.list[str]:
        """Paths into metadata that have an index."""
        return self._filtering.indexes()
