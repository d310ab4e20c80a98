"""A named set of items in a Milvus that servers share."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CorruptCollection, InvalidArgument, ItemNotFound, NotOffered
from twinlens.index.ids import check_item_id
from twinlens.index.item import Hit, Item, Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus import reading
from twinlens.index.milvus.filtering import Fetch, condition, filtered_hits, matching
from twinlens.index.milvus.hits import refuse_long, settled_hits
from twinlens.index.milvus.items import StoredItem
from twinlens.index.milvus.refill import MilvusRefill, put_vectors
from twinlens.index.milvus.state import MilvusState
from twinlens.index.operations.export import Export
from twinlens.index.operations.steps import Backup, DuplicateGroup, Finding, Progress
from twinlens.index.paging import check_limit
from twinlens.index.prepare import check_modality, prepare_item
from twinlens.index.search import live_hits
from twinlens.index.stats import GenerationState, Stats
from twinlens.index.vectors import unit_vectors

_DELETED_AT_ONCE = 1_000


class MilvusCollection:
    """A `CollectionLike` whose truth is in Milvus and whose pictures are in a folder or object store.

    Several servers may read and write it side by side. What a call returned for, every server sees from then on. A
    write stores vectors under a key of their own before the item points at that key: so a crash in between leaves the
    item as it was, and searches see it before or after the change.
    """

    def __init__(self, state: MilvusState, collection_id: str) -> None:
        """Takes part in a collection that exists; `MilvusCatalog` does this."""
        self.id = collection_id
        self._state = state
        self._refill = MilvusRefill(state)

    @property
    def space_id(self) -> str:
        """The space that the active vectors belong to."""
        with self._state.use():
            return self._state.generations.active().space_id

    @property
    def version(self) -> str:
        """Another one after every change made here; changes by other servers show within ten seconds."""
        return self._state.version

    @property
    def dimension(self) -> int:
        """The length of the active vectors."""
        with self._state.use():
            return self._state.generations.active().dimension

    @property
    def kind(self) -> Kind:
        """What Milvus keeps over the active vectors."""
        with self._state.use():
            return self._state.generations.kind(self._state.generations.active().number)

    def upsert(self, items: Sequence[NewItem], *, space_id: str) -> builtins.list[str]:
        """As `Collection.upsert`. An error may leave some of the items stored, each of them whole."""
        state = self._state
        with state.change():
            active = state.generations.active()
            state.check_space(active, space_id)
            prepared = [prepare_item(item, active.dimension) for item in items]
            latest = {item.id: item for item in prepared}
            if not latest:
                return []
            replaced, keys = state.items.prepare(latest)
            fresh = dict(zip(keys, latest.values(), strict=True))
            state.pictures.put(
                {(item.content_hash, key): item.image for key, item in fresh.items() if item.image is not None}
            )
            put_vectors(state, active, {key: item.vectors for key, item in fresh.items()})
            state.items.put(fresh, replaced, time.time())
            state.forget(replaced.values())
            return [item.id for item in prepared]

    def delete(self, ids: Sequence[str] = (), *, filter: str = "") -> int:  # noqa: A002 - the wire's word, as below
        """As `Collection.delete`."""
        with self._state.change():
            if ids and filter:
                raise InvalidArgument("items are deleted by their ids or by a filter, not by both")
            if filter:
                return self._delete_matching(filter)
            found = self._state.items.by_id({check_item_id(item_id) for item_id in ids})
            return self._delete(list(found.values()))

    def get(self, id: str) -> Item:  # noqa: A002
        """As `Collection.get`."""
        with self._state.use():
            return self._stored(id).item

    def get_image(self, id: str) -> bytes:  # noqa: A002
        """As `Collection.get_image`."""
        with self._state.use():
            before: int | None = None
            while True:
                stored = self._stored(id)
                if not stored.item.has_image:
                    raise ItemNotFound(f"item {id!r} of {self._state.name} has no picture")
                if stored.key == before:
                    raise CorruptCollection(f"{self._state.name}: the picture of item {id!r} is missing")
                data = self._state.pictures.read(stored)
                if data is not None:
                    return data
                before = stored.key  # replaced between the two reads, or lost: the item says which

    def get_vector(self, id: str, modality: Modality) -> NDArray[np.float32]:  # noqa: A002
        """As `Collection.get_vector`."""
        with self._state.use():
            wanted = check_modality(modality)
            vectors = self._state.generations.vectors(self._state.generations.active(), wanted)
            before: int | None = None
            while True:
                stored = self._stored(id)
                for _, found in vectors.fetch(np.array([stored.key], dtype=np.int64)):
                    if len(found):
                        vector: NDArray[np.float32] = found[0]
                        return vector
                if stored.key == before:
                    raise ItemNotFound(f"item {id!r} of {self._state.name} has no {wanted} vector")
                before = stored.key

    def list(self, *, after: str = "", limit: int = 100, filter: str = "") -> builtins.list[Item]:  # noqa: A002
        """As `Collection.list`."""
        check_limit(limit)
        with self._state.use():
            node, behind = condition(filter), check_item_id(after) if after else after
            if node is None:
                return [stored.item for stored in self._state.items.page(behind, limit)]
            found: builtins.list[Item] = []
            for stored in matching(self._state, node, behind):
                found.append(stored.item)
                if len(found) == limit:
                    break
            return found

    def count(self, filter: str = "") -> int:  # noqa: A002
        """As `Collection.count`; with a filter every item is read."""
        with self._state.use():
            node = condition(filter)
            return self._state.items.count() if node is None else sum(1 for _ in matching(self._state, node))

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
        """As `Collection.search`; which of many ties are left out is chance, and a filter that few match reads all."""
        del sample  # nothing is measured of recall here
        state = self._state
        with state.use():
            active = state.generations.active()
            state.check_space(active, space_id)
            if top_k < 1:
                raise InvalidArgument(f"top_k is {top_k}, but must be at least 1")
            if min_score is not None and np.isnan(min_score):
                raise InvalidArgument("min_score is not a number")
            index = state.generations.index(active, check_modality(modality))
            units = unit_vectors(queries, active.dimension, what="query")
            node = condition(filter)

            def attempt(fetch: Fetch) -> builtins.list[builtins.list[Hit]]:
                if node is None:
                    return live_hits(index, units, top_k, fetch, min_score=min_score, exact=exact)
                return filtered_hits(state, fetch, index, units, top_k, node, min_score=min_score, exact=exact)

            hits = settled_hits(state, attempt)
            if max_characters is not None:
                refuse_long((hit.item for of_query in hits for hit in of_query), max_characters)
            return hits

    def stats(self) -> Stats:
        """As `Collection.stats`, as far as Milvus tells. Vectors that a crash left without an item are counted."""
        return reading.stats(self._state, self.id)

    def generations(self) -> builtins.list[GenerationState]:
        """As `Collection.generations`."""
        return reading.generation_states(self._state)

    def iter_vectors(
        self, modality: Modality, *, batch: int = 1024
    ) -> Iterator[tuple[builtins.list[str], NDArray[np.float32]]]:
        """As `Collection.iter_vectors`."""
        for items, vectors in reading.vector_pages(self._state, modality, batch):
            yield [item.id for item in items], vectors

    def iter_metadata(
        self, key: str, modality: Modality, *, batch: int = 1024
    ) -> Iterator[tuple[builtins.list[Any], NDArray[np.float32]]]:
        """As `Collection.iter_metadata`."""
        for items, vectors in reading.vector_pages(self._state, modality, batch):
            yield [item.metadata.get(key) for item in items], vectors

    def export(
        self,
        modalities: Sequence[Modality] = (),
        *,
        filter: str = "",  # noqa: A002
        batch: int = 256,
    ) -> Export:
        """As `Collection.export`."""
        return reading.export(self._state, modalities, condition(filter), check_limit(batch))

    def begin_generation(self, *, space_id: str, dimension: int) -> int:
        """As `Collection.begin_generation`; the number follows from the space, and is the same on every server."""
        return self._refill.begin(space_id=space_id, dimension=dimension)

    def missing(self, generation: int, *, limit: int) -> builtins.list[Item]:
        """As `Collection.missing`."""
        return self._refill.missing(generation, limit=limit)

    def write_vectors(self, generation: int, vectors: Mapping[str, Mapping[Modality, NDArray[Any]]]) -> None:
        """As `Collection.write_vectors`."""
        self._refill.write(generation, vectors)

    def activate(self, generation: int) -> None:
        """As `Collection.activate`. Items that another server stores at that moment may be missing afterwards."""
        self._refill.activate(generation)

    def drop_generation(self, generation: int) -> None:
        """As `Collection.drop_generation`."""
        self._refill.drop(generation)

    def merge(self, *, kind: Kind | None = None, wait: bool = True) -> None:
        """Not offered: Milvus merges by itself."""
        del kind, wait
        self._refuse("merges by itself, and keeps the kind a collection was created with")

    def check(self) -> Iterator[Progress | Finding]:
        """Not offered."""
        self._refuse("has no check of twinlens yet")

    def duplicates(
        self, modality: Modality, *, threshold: float = 0.95, exact: bool | None = None
    ) -> Iterator[Progress | DuplicateGroup]:
        """Not offered."""
        del modality, threshold, exact
        self._refuse("does not find duplicates yet: export the collection, and import it where there is no Milvus")

    def backup(self, to: str, *, backup: str = "") -> Iterator[Progress | Backup]:
        """Not offered: Milvus has a tool of its own."""
        del to, backup
        self._refuse("is backed up by its own tool, milvus-backup; or export the collection")

    def add_metadata_index(self, path: str) -> str:
        """Not offered."""
        del path
        self._refuse("has no indexes on metadata")

    def remove_metadata_index(self, path: str) -> None:
        """Not offered."""
        del path
        self._refuse("has no indexes on metadata")

    def metadata_indexes(self) -> builtins.list[str]:
        """None."""
        return []

    def close(self) -> None:
        """Waits for running calls; later ones raise CollectionNotFound."""
        self._state.close()

    def _stored(self, item_id: str) -> StoredItem:
        found = self._state.items.by_id([check_item_id(item_id)]).get(item_id)
        if found is None:
            raise ItemNotFound(f"{self._state.name} has no item {item_id!r}")
        return found

    def _delete_matching(self, text: str) -> int:
        node = condition(text)
        if node is None:
            raise InvalidArgument("a blank filter deletes nothing: name ids, or give a filter that says which items")
        found = list(matching(self._state, node))
        steps = range(0, len(found), _DELETED_AT_ONCE)
        return sum(self._delete(found[start : start + _DELETED_AT_ONCE]) for start in steps)

    def _delete(self, found: builtins.list[StoredItem]) -> int:
        self._state.items.delete(found)
        self._state.forget(found)
        return len(found)

    def _refuse(self, why: str) -> NoReturn:
        raise NotOffered(f"{self._state.name} lives in Milvus, which {why}")
