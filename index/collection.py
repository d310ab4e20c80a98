"""A named set of items: the database is the truth, engines in memory make it fast."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index import generations, store
from twinlens.index.blobs import BlobStore
from twinlens.index.database import Database
from twinlens.index.errors import (
    CollectionNotFound,
    CorruptCollection,
    InvalidArgument,
    ItemNotFound,
    SpaceMismatch,
)
from twinlens.index.generations import EngineFactory, Fill, LoadedGeneration
from twinlens.index.ids import check_item_id
from twinlens.index.item import Hit, Item, Modality, NewItem, Stats
from twinlens.index.prepare import check_modality, prepare_item, prepare_vectors
from twinlens.index.rwlock import ReadWriteLock
from twinlens.index.search import live_hits
from twinlens.index.vectors import unit_vectors

DATABASE_FILE = "collection.db"
BLOB_FOLDER = "blobs"


class Collection:
    """Items with their vectors. Methods block, may be called from any thread, and what they return for is on disk.

    Every write commits to the database first and then changes the engines, one write at a time; searches go on
    meanwhile and see a vector before or after it, and after the write has returned always the new one.
    """

    def __init__(self, folder: Path, collection_id: str, *, engine: EngineFactory) -> None:
        """Opens a collection and loads its vectors; `Catalog` does this.

        Args:
            folder: Where it lies; nobody else may have it open.
            collection_id: What it is called.
            engine: Makes the engines that search.

        Raises:
            CorruptCollection: damaged, or of a newer schema.
            EngineUnavailable: the engine's package is not installed.
        """
        self.id = collection_id
        self._name = f"collection {collection_id}"
        self._engine = engine
        self._writing = threading.Lock()  # from before the commit until the engines follow
        self._gate = ReadWriteLock()  # held for reading by every call, for writing while closing
        self._closed = False
        self._fills: dict[int, Fill] = {}
        path = folder / DATABASE_FILE
        crashed = path.with_name(f"{DATABASE_FILE}-wal").exists()  # SQLite removes it on a clean close
        self._blobs = BlobStore(folder / BLOB_FOLDER, self._name)
        self._database = Database(path, self._name)
        try:
            with self._database.read() as connection:
                active, self._created_s = generations.find_active(connection, self._name)
                self._loaded: LoadedGeneration | None = generations.load(connection, active, engine, self._name)
                if crashed:
                    self._blobs.sweep(store.all_blobs(connection))
        except BaseException:
            self._database.close()
            raise

    @property
    def space_id(self) -> str:
        """The space that the active vectors belong to."""
        with self._open():
            return self._current().generation.space_id

    @property
    def dimension(self) -> int:
        """The length of the active vectors."""
        with self._open():
            return self._current().generation.dimension

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
        with self._open():
            dimension = self._check_space(self._current(), space_id)
            prepared = [prepare_item(item, dimension) for item in items]
            latest = {item.id: item for item in prepared}
            if not latest:
                return []
            pictures = [(item.content_hash, item.image) for item in latest.values() if item.image is not None]
            replaced: set[str] = set()
            try:
                with self._blobs.hold(pictures), self._writing:
                    loaded = self._current_while_writing()
                    self._check_space(loaded, space_id)
                    with self._database.write() as connection:
                        rows = store.find_rows(connection, latest)
                        now_s = time.time()
                        vectors = {
                            store.put_item(connection, item, rows.get(item.id), now_s): item.vectors
                            for item in latest.values()
                        }
                        store.put_vectors(connection, loaded.generation.number, vectors)
                    self._follow(loaded, vectors)
                    replaced = {row.blob for row in rows.values() if row.blob is not None}
            except BaseException:
                self._discard({digest for digest, _ in pictures})
                raise
            self._discard(replaced)
            return [item.id for item in prepared]

    def delete(self, ids: Sequence[str]) -> int:
        """Removes items; ids that do not exist are no error. Returns how many existed."""
        with self._open():
            wanted = {check_item_id(item_id) for item_id in ids}
            with self._writing:
                loaded = self._current_while_writing()
                with self._database.write() as connection:
                    rows = store.find_rows(connection, wanted)
                    store.delete_items(connection, [row.key for row in rows.values()])
                self._follow(loaded, {row.key: {} for row in rows.values()})
            self._discard({row.blob for row in rows.values() if row.blob is not None})
            return len(rows)

    def get(self, id: str) -> Item:  # noqa: A002 - the word that callers know it by
        """One item.

        Raises:
            ItemNotFound: there is none of that id.
        """
        with self._open(), self._database.read() as connection:
            item = store.item_by_id(connection, check_item_id(id), self._name)
        if item is None:
            raise self._no_item(id)
        return item

    def get_image(self, id: str) -> bytes:  # noqa: A002
        """The bytes of an item's picture, as they were stored.

        Raises:
            ItemNotFound: there is no such item, or it has no picture.
            CorruptCollection: the stored bytes are gone or changed.
        """
        with self._open():
            before = ""
            while True:
                with self._database.read() as connection:
                    row = store.find_rows(connection, [check_item_id(id)]).get(id)
                if row is None:
                    raise self._no_item(id)
                if row.blob is None:
                    raise ItemNotFound(f"item {id!r} of {self._name} has no picture")
                if row.blob == before:
                    raise CorruptCollection(f"{self._name}: the picture of item {id!r} is missing")
                data = self._blobs.read(row.blob)
                if data is not None:
                    return data
                before = row.blob  # replaced between the two reads, or lost: the row says which

    def get_vector(self, id: str, modality: Modality) -> NDArray[np.float32]:  # noqa: A002
        """One active vector of an item, shape (d,).

        Raises:
            ItemNotFound: there is no such item, or it has no such vector.
        """
        with self._open():
            generation = self._current().generation
            kind = check_modality(modality)
            with self._database.read() as connection:
                vector = store.vector_of(
                    connection,
                    generation.number,
                    check_item_id(id),
                    kind,
                    generation.dimension,
                    self._name,
                )
                known = vector is not None or store.find_rows(connection, [id])
            if not known:
                raise self._no_item(id)
            if vector is None:
                raise ItemNotFound(f"item {id!r} of {self._name} has no {kind} vector")
            return vector

    def list(self, *, after: str = "", limit: int = 100) -> builtins.list[Item]:
        """A page of items in the order of their ids, from the one behind `after`."""
        with self._open(), self._database.read() as connection:
            return store.page_of_items(connection, _check_text_key(after), _check_limit(limit), self._name)

    def search(
        self,
        queries: NDArray[Any],
        *,
        modality: Modality,
        top_k: int,
        space_id: str,
        min_score: float | None = None,
        exact: bool = False,
    ) -> builtins.list[builtins.list[Hit]]:
        """Finds the items whose vectors have the highest cosine with each query.

        Args:
            queries: Shape (q, d), of any length but zero.
            modality: Which vectors to compare with.
            top_k: How many hits at most, from 1.
            space_id: The space the queries belong to.
            min_score: Leave out hits below this cosine.
            exact: Do without approximation, whatever the engine.

        Returns:
            Per query the hits, best first; ties in the order in which the items were first stored.

        Raises:
            SpaceMismatch: another space is active.
            InvalidVector: a query is unusable.
            InvalidArgument: top_k is below 1.
        """
        with self._open():
            loaded = self._current()
            dimension = self._check_space(loaded, space_id)
            if top_k < 1:
                raise InvalidArgument(f"top_k is {top_k}, but must be at least 1")
            if min_score is not None and np.isnan(min_score):
                raise InvalidArgument("min_score is not a number")
            engine = loaded.engines[check_modality(modality)]
            hits = live_hits(
                engine,
                unit_vectors(queries, dimension, what="query"),
                top_k,
                self._items_by_key,
                exact=exact,
            )
            if min_score is None:
                return hits
            return [[hit for hit in of_query if hit.score >= min_score] for of_query in hits]

    def stats(self) -> Stats:
        """Counts."""
        with self._open():
            loaded = self._current()
            with self._database.read() as connection:
                items = store.count_items(connection)
            return Stats(
                id=self.id,
                space_id=loaded.generation.space_id,
                dimension=loaded.generation.dimension,
                items=items,
                image_vectors=len(loaded.engines[Modality.IMAGE]),
                text_vectors=len(loaded.engines[Modality.TEXT]),
                created_s=self._created_s,
            )

    def iter_vectors(
        self,
        modality: Modality,
        *,
        batch: int = 1024,
    ) -> Iterator[tuple[builtins.list[str], NDArray[np.float32]]]:
        """Goes through the active vectors, as ids and an array of shape (n, d) at a time.

        Items stored or deleted meanwhile may or may not be among them. The generation is the one active at the start.
        """
        kind, limit = check_modality(modality), _check_limit(batch)
        with self._open():
            generation = self._current().generation
        after = 0
        while True:
            with self._open(), self._database.read() as connection:
                rows = store.page_of_vectors(connection, generation.number, kind, after, limit)
            if not rows:
                return
            keys, ids, blobs = zip(*rows, strict=True)
            yield list(ids), store.decode_vectors(keys, blobs, generation.dimension, self._name)
            after = keys[-1]

    def begin_generation(self, *, space_id: str, dimension: int) -> int:
        """Starts a generation to be filled beside the active one, or goes on with one of that space.

        Returns:
            Its number. Where that space is the active one already, its number, with nothing missing.

        Raises:
            InvalidArgument: the dimension is below 1, or not that of the space.
        """
        with self._open(), self._writing, self._database.write() as connection:
            if not space_id or dimension < 1:
                raise InvalidArgument(f"a generation needs a space and a dimension from 1, not {dimension}")
            active = self._current_while_writing().generation
            found = active if active.space_id == space_id else generations.newest_of_space(connection, space_id)
            if found is None:
                return generations.insert_generation(connection, space_id, dimension, time.time())
            if found.dimension != dimension:
                raise InvalidArgument(
                    f"space {space_id} has dimension {found.dimension} in {self._name}, not {dimension}",
                )
            return found.number

    def missing(self, generation: int, *, limit: int) -> builtins.list[Item]:
        """Items that a generation has not dealt with, at most `limit`; empty once there are none.

        One filler at a time: the last answer is what `write_vectors` takes its vectors to be made from.
        """
        with self._open(), self._writing, self._database.read() as connection:
            generations.find_generation(connection, generation, self._name)
            _check_limit(limit)
            fill = self._fills.setdefault(generation, Fill())
            end = 2**63 - 1
            found = store.missing_items(connection, generation, range(fill.first, end), limit, self._name)
            if len(found) < limit:  # replaced ones may lie before
                found += store.missing_items(
                    connection,
                    generation,
                    range(fill.first),
                    limit - len(found),
                    self._name,
                )
            fill.first = min((row.key for row, _ in found), default=0)
            fill.handed_out = {item.id: row for row, item in found}
            return [item for _, item in found]

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
        with self._open(), self._writing:
            loaded = self._current_while_writing()
            with self._database.write() as connection:
                target = generations.find_generation(connection, generation, self._name)
                rows = store.find_rows(connection, vectors)
                handed_out = self._fills.get(generation, Fill()).handed_out
                by_key = {
                    row.key: prepare_vectors(vectors[item_id], target.dimension, item_id)
                    for item_id, row in rows.items()
                    if handed_out.get(item_id, row) == row
                }
                store.put_vectors(connection, generation, by_key)
            if generation == loaded.generation.number:
                self._follow(loaded, by_key)

    def activate(self, generation: int) -> None:
        """Makes a complete generation the active one, in one step; the one before stays until it is dropped.

        Raises:
            InvalidArgument: no such generation, or items are missing in it.
        """
        with self._open(), self._writing:
            if self._current_while_writing().generation.number == generation:
                return
            with self._database.read() as connection:
                target = generations.find_generation(connection, generation, self._name)
                missing = generations.count_missing(connection, generation)
                if missing:
                    raise InvalidArgument(f"generation {generation} of {self._name} still misses {missing} items")
                loaded = generations.load(connection, target, self._engine, self._name)
            with self._database.write() as connection:
                generations.set_active(connection, generation)
            self._loaded = loaded
            self._fills.pop(generation, None)

    def drop_generation(self, generation: int) -> None:
        """Removes a generation and its vectors.

        Raises:
            InvalidArgument: no such generation, or it is the active one.
        """
        with self._open(), self._writing:
            if self._current_while_writing().generation.number == generation:
                raise InvalidArgument(f"generation {generation} of {self._name} is active and cannot be dropped")
            with self._database.write() as connection:
                generations.find_generation(connection, generation, self._name)
                generations.delete_generation(connection, generation)
            self._fills.pop(generation, None)

    def close(self) -> None:
        """Waits for running calls and closes the files; later calls raise CollectionNotFound."""
        with self._gate.write():
            if self._closed:
                return
            self._closed = True
            if self._loaded is not None:
                for engine in self._loaded.engines.values():
                    engine.close()
            self._database.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keeps the collection open for the length of a call."""
        with self._gate.read():
            if self._closed:
                raise CollectionNotFound(f"{self._name} is no longer open")
            yield

    def _current(self) -> LoadedGeneration:
        loaded = self._loaded
        if loaded is None:
            with self._writing:
                return self._current_while_writing()
        return loaded

    def _current_while_writing(self) -> LoadedGeneration:
        """The active generation; rebuilt from the truth if the engines could not follow an earlier commit."""
        if self._loaded is None:
            with self._database.read() as connection:
                active, _ = generations.find_active(connection, self._name)
                self._loaded = generations.load(connection, active, self._engine, self._name)
        return self._loaded

    def _follow(self, loaded: LoadedGeneration, vectors: Mapping[int, Mapping[Modality, NDArray[np.float32]]]) -> None:
        """Brings the engines to what was committed. Should that fail, the commit stands, so they are rebuilt."""
        try:
            loaded.replace(vectors)
        except BaseException as error:
            self._loaded = None
            if not isinstance(error, Exception):
                raise

    def _check_space(self, loaded: LoadedGeneration, space_id: str) -> int:
        """Returns the dimension if the space is the active one."""
        active = loaded.generation
        if space_id != active.space_id:
            raise SpaceMismatch(f"{self._name} holds vectors of space {active.space_id}, not of space {space_id}")
        return active.dimension

    def _discard(self, digests: set[str]) -> None:
        """Removes the blobs among these that no item has any more."""
        if digests:
            with self._writing, self._database.read() as connection:
                self._blobs.discard(store.unnamed_blobs(connection, digests))

    def _items_by_key(self, keys: Any) -> dict[int, Item]:
        with self._database.read() as connection:
            return store.items_by_key(connection, keys, self._name)

    def _no_item(self, item_id: str) -> ItemNotFound:
        return ItemNotFound(f"{self._name} has no item {item_id!r}")


def _check_limit(limit: int) -> int:
    if limit < 1:
        raise InvalidArgument(f"the limit is {limit}, but must be at least 1")
    return limit


def _check_text_key(after: str) -> str:
    return after if not after else check_item_id(after)
