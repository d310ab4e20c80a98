"""A named set of items: the database is the truth, engines in memory make it fast."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.collection_operations import CollectionOperations
from twinlens.index.engines import Engines
from twinlens.index.errors import InvalidArgument
from twinlens.index.item import Hit, Item, Modality, NewItem
from twinlens.index.reading import Reading
from twinlens.index.state import CollectionState
from twinlens.index.writing import Writing


class Collection(CollectionOperations):
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
        super().__init__(collection_id, CollectionState(folder, f"collection {collection_id}", engines, variant))
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

    def close(self) -> None:
        """Waits for running calls and closes the files; later calls raise CollectionNotFound."""
        self._state.close()
