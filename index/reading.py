"""Items, pictures, vectors and hits, as they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index import generations, store, stored_vectors
from twinlens.index.errors import CorruptCollection, InvalidArgument, ItemNotFound
from twinlens.index.filters.conditions import Sql
from twinlens.index.filters.filtering import Filtering
from twinlens.index.ids import check_item_id
from twinlens.index.item import Hit, Item, Modality
from twinlens.index.prepare import check_modality
from twinlens.index.search import live_hits
from twinlens.index.state import CollectionState
from twinlens.index.vectors import unit_vectors

# Python gives its lock away at every row that SQLite steps to. Threads that read side by side spend their time waiting
# for it: eight were nine times slower together than one. So short reads take turns, in all collections of the process.
_TURN = threading.Lock()
_SHORT = 1024  # items


class Reading:
    """The work of reading one collection, behind the methods of `Collection`, where its contract is stated."""

    def __init__(self, state: CollectionState, filtering: Filtering) -> None:
        self._state = state
        self._filtering = filtering

    def item(self, item_id: str) -> Item:
        """As `Collection.get`."""
        with self._state.use(), self._state.database.read() as connection:
            item = store.item_by_id(connection, check_item_id(item_id), self._state.name)
        if item is None:
            raise self._no_item(item_id)
        return item

    def image(self, item_id: str) -> bytes:
        """As `Collection.get_image`."""
        with self._state.use():
            before: str | None = None
            while True:
                with self._state.database.read() as connection:
                    row = store.find_rows(connection, [check_item_id(item_id)]).get(item_id)
                if row is None:
                    raise self._no_item(item_id)
                if row.blob is None:
                    raise ItemNotFound(f"item {item_id!r} of {self._state.name} has no picture")
                if row.blob == before:
                    raise CorruptCollection(f"{self._state.name}: the picture of item {item_id!r} is missing")
                data = self._state.blobs.read(row.blob)
                if data is not None:
                    return data
                before = row.blob  # replaced between the two reads, or lost: the row says which

    def vector(self, item_id: str, modality: Modality) -> NDArray[np.float32]:
        """As `Collection.get_vector`."""
        with self._state.use():
            kind = check_modality(modality)
            with self._state.database.read() as connection:
                generation, _ = generations.find_active(connection, self._state.name)
                vector = stored_vectors.vector_of(
                    connection,
                    generation.number,
                    check_item_id(item_id),
                    kind,
                    generation.dimension,
                    self._state.name,
                )
                known = vector is not None or store.find_rows(connection, [item_id])
            if not known:
                raise self._no_item(item_id)
            if vector is None:
                raise ItemNotFound(f"item {item_id!r} of {self._state.name} has no {kind} vector")
            return vector

    def hits(
        self,
        queries: NDArray[Any],
        *,
        modality: Modality,
        top_k: int,
        space_id: str,
        min_score: float | None,
        max_characters: int | None,
        exact: bool,
        filter: str,  # noqa: A002 - the wire's word
        sample: bool,
    ) -> list[list[Hit]]:
        """As `Collection.search`."""
        with self._state.use():
            loaded = self._state.current()
            dimension = self._state.check_space(loaded, space_id)
            if top_k < 1:
                raise InvalidArgument(f"top_k is {top_k}, but must be at least 1")
            if min_score is not None and np.isnan(min_score):
                raise InvalidArgument("min_score is not a number")
            engine = loaded.engines[check_modality(modality)]
            units = unit_vectors(queries, dimension, what="query")
            if sample and not exact and not filter.strip():
                self._state.audit.notice(check_modality(modality), units)
            return live_hits(
                engine,
                units,
                top_k,
                partial(self._items_by_key, max_characters=max_characters, where=self._filtering.where(filter)),
                min_score=min_score,
                exact=exact,
                among=self._filtering.among(filter),
            )

    def _items_by_key(self, keys: Iterable[int], max_characters: int | None, where: Sql) -> dict[int, Item]:
        wanted = list(keys)
        with _TURN if len(wanted) <= _SHORT else nullcontext(), self._state.database.read() as connection:
            return store.items_by_key(connection, wanted, self._state.name, max_characters, where)

    def _no_item(self, item_id: str) -> ItemNotFound:
        return ItemNotFound(f"{self._state.name} has no item {item_id!r}")
