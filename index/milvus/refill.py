"""Filling a generation in Milvus beside the active one, and making it the active one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import InvalidArgument
from twinlens.index.generations import Generation
from twinlens.index.item import Item, Modality
from twinlens.index.milvus.state import MilvusState
from twinlens.index.paging import check_limit
from twinlens.index.prepare import prepare_vectors

_PAGE = 200


class MilvusRefill:
    """The work on generations, behind the methods of `MilvusCollection`; the contract is stated at `Collection`."""

    def __init__(self, state: MilvusState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._behind: dict[int, str] = {}  # no item up to this id was missing in the generation when last asked
        self._handed_out: dict[int, dict[str, int]] = {}  # item id to the key that it is embedded for

    def begin(self, *, space_id: str, dimension: int) -> int:
        """As `Collection.begin_generation`."""
        if not space_id or dimension < 1:
            raise InvalidArgument(f"a generation needs a space and a dimension from 1, not {dimension}")
        with self._state.change():
            found = self._state.generations.create(space_id, dimension)
        if found.dimension != dimension:
            raise InvalidArgument(
                f"space {space_id} has dimension {found.dimension} in {self._state.name}, not {dimension}",
            )
        return found.number

    def missing(self, generation: int, *, limit: int) -> list[Item]:
        """As `Collection.missing`."""
        check_limit(limit)
        with self._state.use():
            self._state.generations.find(generation)
            behind = self._behind.get(generation, "")
            found, first = self._missing_behind(generation, behind, limit)
            if len(found) < limit and behind:  # items before may have been replaced meanwhile
                again, first = self._missing_behind(generation, "", limit)
                found = {**again, **found} if len(again) < limit else again
            with self._lock:
                self._behind[generation] = first
                self._handed_out.setdefault(generation, {}).update({key: value for key, (value, _) in found.items()})
            return [item for _, item in found.values()][:limit]

    def write(self, generation: int, vectors: Mapping[str, Mapping[Modality, NDArray[Any]]]) -> None:
        """As `Collection.write_vectors`."""
        with self._state.change():
            target = self._state.generations.find(generation)
            stored = self._state.items.by_id(vectors)
            with self._lock:
                handed_out = dict(self._handed_out.get(generation, {}))
            by_key = {
                one.key: prepare_vectors(vectors[item_id], target.dimension, item_id)
                for item_id, one in stored.items()
                if handed_out.get(item_id, one.key) == one.key
            }
            put_vectors(self._state, target, by_key)
            with self._lock:
                for item_id in vectors:
                    self._handed_out.get(generation, {}).pop(item_id, None)

    def activate(self, generation: int) -> None:
        """As `Collection.activate`."""
        with self._state.change():
            if self._state.generations.active().number == generation:
                return
            self._state.generations.find(generation)
            missing = 0
            for page in self._state.items.all():
                keys = [stored.key for stored in page]
                missing += len(keys) - len(self._state.generations.marked(generation, keys))
            if missing:
                raise InvalidArgument(
                    f"generation {generation} of {self._state.name} still misses {missing} items",
                )
            self._state.generations.activate(generation)

    def drop(self, generation: int) -> None:
        """As `Collection.drop_generation`."""
        with self._state.change():
            if self._state.generations.active().number == generation:
                raise InvalidArgument(f"generation {generation} of {self._state.name} is active and cannot be dropped")
            self._state.generations.find(generation)
            self._state.generations.drop(generation)
            with self._lock:
                self._behind.pop(generation, None)
                self._handed_out.pop(generation, None)

    def _missing_behind(self, generation: int, after: str, limit: int) -> tuple[dict[str, tuple[int, Item]], str]:
        """Items by id with their keys, and the id before the first of them."""
        found: dict[str, tuple[int, Item]] = {}
        first = after
        while page := self._state.items.page(after, _PAGE):
            marked = self._state.generations.marked(generation, [stored.key for stored in page])
            for stored in page:
                if stored.key not in marked:
                    found[stored.item.id] = (stored.key, stored.item)
                elif not found:
                    first = stored.item.id
                if len(found) == limit:
                    return found, first
            after = page[-1].item.id
        return found, first


def put_vectors(
    state: MilvusState,
    generation: Generation,
    by_key: Mapping[int, Mapping[Modality, NDArray[np.float32]]],
) -> None:
    """Stores vectors of a generation by key, and notes that it has dealt with these keys."""
    for modality in Modality:
        given = {key: of_item[modality] for key, of_item in by_key.items() if modality in of_item}
        if given:
            index = state.generations.index(generation, modality)
            index.upsert(np.array(list(given), dtype=np.int64), np.stack(list(given.values())))
    state.generations.mark(generation.number, by_key)
