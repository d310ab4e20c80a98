"""Filling a generation beside the active one, and making it the active one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from twinlens.index import generations, store, stored_vectors
from twinlens.index.errors import InvalidArgument
from twinlens.index.generations import Fill, Generation
from twinlens.index.item import Item, Modality
from twinlens.index.paging import check_limit
from twinlens.index.prepare import prepare_vectors
from twinlens.index.state import CollectionState
from twinlens.index.tree.build_beside import built_segments
from twinlens.index.tree.changes import note_changes
from twinlens.index.tree.open_beside import opened_beside
from twinlens.index.tree.segment_rows import forget_others
from twinlens.index.tree.tidy import discard_folder

_ALL_KEYS = 2**63 - 1
_DROPPED_AT_ONCE = 4096


class Refill:
    """The work on generations of one collection, behind the methods of `Collection`, where its contract is stated."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state
        self._activating = threading.Lock()
        self._filling = threading.Lock()  # taken before state.writing
        self._fills: dict[int, Fill] = {}  # guarded by _filling

    def begin(self, *, space_id: str, dimension: int) -> int:
        """As `Collection.begin_generation`."""
        with self._state.use(), self._state.writing, self._state.database.write() as connection:
            if not space_id or dimension < 1:
                raise InvalidArgument(f"a generation needs a space and a dimension from 1, not {dimension}")
            active = self._state.current_while_writing().generation
            found = active if active.space_id == space_id else generations.newest_of_space(connection, space_id)
            if found is None:
                return generations.insert_generation(connection, space_id, dimension, time.time())
            if found.dimension != dimension:
                raise InvalidArgument(
                    f"space {space_id} has dimension {found.dimension} in {self._state.name}, not {dimension}",
                )
            return found.number

    def missing(self, generation: int, *, limit: int) -> list[Item]:
        """As `Collection.missing`."""
        check_limit(limit)
        name = self._state.name
        with self._state.use(), self._filling, self._state.database.read() as connection:
            generations.find_generation(connection, generation, name)
            fill = self._fills.setdefault(generation, Fill())
            found = store.missing_items(connection, generation, range(fill.first, _ALL_KEYS), limit, name)
            rest = limit - len(found)
            if rest:  # items before may have been replaced meanwhile
                found += store.missing_items(connection, generation, range(fill.first), rest, name)
            fill.first = min((row.key for row, _ in found), default=0)
            fill.handed_out.update((item.id, row) for row, item in found)
            return [item for _, item in found]

    def write(self, generation: int, vectors: Mapping[str, Mapping[Modality, NDArray[Any]]]) -> None:
        """As `Collection.write_vectors`."""
        with self._state.use(), self._filling, self._state.writing:
            loaded = self._state.current_while_writing()
            with self._state.database.write() as connection:
                target = generations.find_generation(connection, generation, self._state.name)
                rows = store.find_rows(connection, vectors)
                handed_out = self._fills.setdefault(generation, Fill()).handed_out
                by_key = {
                    row.key: prepare_vectors(vectors[item_id], target.dimension, item_id)
                    for item_id, row in rows.items()
                    if handed_out.get(item_id, row) == row
                }
                stored_vectors.put_vectors(connection, generation, by_key)
                note_changes(connection, by_key, generation)
                if by_key:
                    generations.note_variant(connection, generation, self._state.variant)
            for item_id in vectors:
                handed_out.pop(item_id, None)
            if generation == loaded.generation.number:
                self._state.follow(loaded, by_key)

    def activate(self, generation: int) -> None:
        """As `Collection.activate`."""
        state = self._state
        with state.use(), self._activating:
            if state.current().generation.number == generation:
                return
            target = self._complete(generation)
            with built_segments(state, target), opened_beside(state, target) as opened:
                opened.catch_up()
                self._complete(generation)  # items may have come meanwhile
                with state.writing:
                    before = state.current_while_writing()
                    loaded, changed = opened.finish()
                    self._complete(generation, changed)
                    with state.database.write() as connection:
                        generations.set_active(connection, generation)
                        forget_others(connection, generation)
                    state.switch(loaded)
            for tree in before.trees.values():
                discard_folder(state.segments, tree.token)
            self._forget_fill(generation)

    def drop(self, generation: int) -> None:
        """As `Collection.drop_generation`."""
        state = self._state
        with state.use(), self._activating:
            with state.database.read() as connection:
                generations.find_generation(connection, generation, state.name)
                last = store.last_key(connection)
            if state.current().generation.number == generation:
                raise InvalidArgument(f"generation {generation} of {state.name} is active and cannot be dropped")
            # Piece by piece, so that writers need not wait for all of it. What a crash leaves misses some items.
            for first in range(0, last + 1, _DROPPED_AT_ONCE):
                with state.writing, state.database.write() as connection:
                    generations.empty_generation(connection, generation, range(first, first + _DROPPED_AT_ONCE))
            with state.writing, state.database.write() as connection:
                generations.delete_generation(connection, generation)
            self._forget_fill(generation)

    def _forget_fill(self, generation: int) -> None:
        with self._filling:
            self._fills.pop(generation, None)

    def _complete(self, generation: int, keys: Sequence[int] | None = None) -> Generation:
        """The generation of that number, which must not miss items, or not those with these keys."""
        with self._state.database.read() as connection:
            target = generations.find_generation(connection, generation, self._state.name)
            missing = generations.count_missing(connection, generation, keys)
        if missing:
            raise InvalidArgument(f"generation {generation} of {self._state.name} still misses {missing} items")
        return target
