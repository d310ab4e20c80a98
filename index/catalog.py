"""All collections of a data folder."""

from __future__ import annotations

import builtins
import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from twinlens.index import generations
from twinlens.index.aside import aside, clear_aside, take_place
from twinlens.index.collection import Collection
from twinlens.index.database import create_database, translated
from twinlens.index.durable import make_folder, sync
from twinlens.index.engines import EngineFactory, Engines
from twinlens.index.errors import (
    CollectionError,
    CollectionExists,
    CollectionNotFound,
    EngineUnavailable,
    InvalidArgument,
)
from twinlens.index.folder_lock import lock_folder
from twinlens.index.ids import check_collection_id, may_be_collection_id
from twinlens.index.kinds.device import Device, check_device
from twinlens.index.kinds.kind import Kind, check_kind
from twinlens.index.memory import available_bytes
from twinlens.index.operations.backup_place import BackupPlace
from twinlens.index.operations.restore import find_backup, restore_into
from twinlens.index.operations.steps import Progress
from twinlens.index.options import IndexOptions
from twinlens.index.paging import check_limit
from twinlens.index.reserve import Reserve
from twinlens.index.search_threads import SearchThreads
from twinlens.index.state import DATABASE_FILE


@dataclasses.dataclass(frozen=True, slots=True)
class DamagedCollection:
    """One that cannot be opened, and why, on one line. It can be deleted, or replaced by a backup."""

    id: str
    reason: str


class Catalog:
    """The collections under `root/collections/`. One process at a time; threads share one catalog."""

    def __init__(
        self,
        root: str | Path,
        *,
        options: IndexOptions = IndexOptions(),  # noqa: B008 - it cannot change
        engine: EngineFactory | None = None,
        variant: str = "",
    ) -> None:
        """Takes the data folder, creating it if need be, and clears what a crash left half made or half removed.

        Args:
            root: The data folder.
            options: How its collections are searched.
            engine: Another maker of engines than FAISS with background merges.
            variant: What computes the vectors to come, for the record: `Encoder.variant`.

        Raises:
            CollectionBusy: another catalog, usually of another process, has it; the message says which.
            CollectionError: it cannot be created or written to.
            EngineUnavailable: a GPU is asked for, and FAISS sees none.
        """
        if options.device is Device.CUDA:
            check_device(options.device)
        self._folder = Path(root) / "collections"
        if options.memory_bytes is None:
            options = dataclasses.replace(options, memory_bytes=available_bytes() // 2)
        reserve = Reserve(Path(root) / ".reserve", options.reserve_bytes)
        self._engines = Engines(options, SearchThreads(options.threads), factory=engine, reserve=reserve)
        self._variant = variant
        self._open: dict[str, Collection] = {}
        self._damaged: dict[str, DamagedCollection] = {}
        self._changing = threading.Lock()
        self._closed = False
        with _clear_errors(f"the data folder {root}"):
            make_folder(self._folder)
            self._lock_file = lock_folder(Path(root))
            try:
                clear_aside(self._folder)
                reserve.fill()
            except BaseException:
                os.close(self._lock_file)
                raise

    def create(
        self,
        id: str,  # noqa: A002 - the callers' word
        *,
        space_id: str,
        dimension: int,
        kind: Kind | None = None,
    ) -> Collection:
        """Makes an empty collection.

        Args:
            id: 1 to 64 of a-z, 0-9, "-" and "_", starting with a letter or digit.
            space_id: The space its vectors will belong to.
            dimension: Their length.
            kind: Which structure finds them; None: that of the catalog's options.

        Raises:
            CollectionExists: there is one of that id.
            InvalidArgument: the id, the dimension or the kind is not allowed.
        """
        check_collection_id(id)
        if not space_id or dimension < 1:
            raise InvalidArgument(f"a collection needs a space and a dimension from 1, not {dimension}")
        asked = check_kind(self._engines.options.kind if kind is None else kind)
        with self._changing:
            self._check_open()
            folder = self._folder / id
            if folder.exists():
                raise CollectionExists(f"there is a collection {id} already")
            name = f"collection {id}"
            made = aside(folder)
            try:
                with _clear_errors(name):
                    made.mkdir()
                    with closing(create_database(made / DATABASE_FILE, name)) as connection, translated(name):
                        now_s = time.time()
                        number = generations.insert_generation(connection, space_id, dimension, now_s)
                        connection.execute(
                            "INSERT INTO collection (one, active_generation, created_s, kind) VALUES (1, ?, ?, ?)",
                            (number, now_s, str(asked)),
                        )
                    sync(made)
                    made.rename(folder)
                    sync(self._folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
            return self._opened(id)

    def get(self, id: str) -> Collection:  # noqa: A002
        """The collection of that id, opened once and shared.

        Raises:
            CollectionNotFound: there is none.
            CorruptCollection: it is damaged, or of a newer schema.
        """
        found = self._open.get(id)
        if found is not None:
            return found
        check_collection_id(id)
        with self._changing:
            self._check_open()
            return self._opened(id)

    def opened(self, id: str) -> Collection | None:  # noqa: A002
        """What `get` would return, where that takes no waiting; else None."""
        return self._open.get(id)

    def list(self, *, after: str = "", limit: int = 100) -> builtins.list[Collection]:
        """A page of collections in the order of their ids, from the one behind `after`, without those damaged."""
        check_limit(limit)
        sound: builtins.list[Collection] = []
        while len(sound) < limit and (page := self.entries(after=after, limit=limit)):
            sound += [entry for entry in page if isinstance(entry, Collection)]
            after = page[-1].id
        return sound[:limit]

    def entries(self, *, after: str = "", limit: int = 100) -> builtins.list[Collection | DamagedCollection]:
        """As `list`, but with those that cannot be opened. They are not tried again here, only by `get`.

        Raises:
            EngineUnavailable: the engine's package is not installed.
        """
        check_limit(limit)
        with self._changing:
            self._check_open()
            ids = sorted(
                path.name for path in self._folder.iterdir() if may_be_collection_id(path.name) and path.is_dir()
            )
            return [self._entry(id_) for id_ in [id_ for id_ in ids if id_ > after][:limit]]

    def delete(self, id: str) -> None:  # noqa: A002
        """Removes a collection with everything in it, also a damaged one. Calls that run on it finish first.

        Raises:
            CollectionNotFound: there is none of that id.
        """
        check_collection_id(id)
        with self._changing:
            self._check_open()
            folder = self._folder / id
            if not folder.is_dir():
                raise CollectionNotFound(f"there is no collection {id}")
            self._close_one(id)
            removed = aside(folder)
            with _clear_errors(f"collection {id}"):
                folder.rename(removed)
                sync(self._folder)
        shutil.rmtree(removed, ignore_errors=True)

    def restore(
        self,
        root: str,
        backup: str,
        *,
        id: str = "",  # noqa: A002
        replace: bool = False,
    ) -> Iterator[Progress | Collection]:
        """Makes a collection of a backup. All of it is verified before it appears; others are served meanwhile.

        Args:
            root: Where backups are kept: a folder or an fsspec address.
            backup: Its id.
            id: What the collection is to be called; empty: as the one that the backup was made of.
            replace: Put it in the place of a collection of that id, damaged or not, once it is verified.

        Yields:
            How far it is, and last the collection.

        Raises:
            BackupNotFound: there is no complete backup of that id.
            DamagedBackup: a file of it is missing, cut off or changed.
            CollectionExists: there is one of that id, and it is not to be replaced.
            CollectionError: the place cannot be read, or the disk is full.
        """
        place = BackupPlace(root)
        manifest = find_backup(place, backup)
        collection_id = check_collection_id(id or manifest.backup.collection)
        folder = self._folder / collection_id
        if not replace and folder.exists():
            raise CollectionExists(f"there is a collection {collection_id} already")
        made = aside(folder)
        try:
            with _clear_errors(f"collection {collection_id}"):
                made.mkdir()
                yield from restore_into(made, place, manifest, f"collection {collection_id}")
            with self._changing:
                self._check_open()
                if not replace and folder.exists():
                    raise CollectionExists(f"there is a collection {collection_id} already")
                with _clear_errors(f"collection {collection_id}"):
                    take_place(made, folder, leave=lambda: self._close_one(collection_id))
                restored = self._opened(collection_id)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        yield restored

    def close(self) -> None:
        """Closes all collections, once running calls are done, and gives up the data folder."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
            with ExitStack() as closing_all:  # whatever fails to close, the rest is closed
                closing_all.callback(os.close, self._lock_file)
                closing_all.callback(self._engines.maintenance.close)
                for collection in self._open.values():
                    closing_all.callback(collection.close)
                self._open.clear()

    def _close_one(self, collection_id: str) -> None:
        """Lets go of a collection, open or damaged; the caller holds the lock."""
        self._damaged.pop(collection_id, None)
        if (collection := self._open.pop(collection_id, None)) is not None:
            collection.close()

    def _entry(self, collection_id: str) -> Collection | DamagedCollection:
        """A collection, or why it cannot be opened; the caller holds the lock."""
        if (damaged := self._damaged.get(collection_id)) is not None:
            return damaged
        try:
            return self._opened(collection_id)
        except EngineUnavailable:
            raise
        except CollectionError as error:
            damaged = self._damaged[collection_id] = DamagedCollection(collection_id, str(error))
            return damaged

    def _opened(self, collection_id: str) -> Collection:
        """Opens a collection or returns the one that is open; the caller holds the lock."""
        found = self._open.get(collection_id)
        if found is None:
            folder = self._folder / collection_id
            if not folder.is_dir():
                raise CollectionNotFound(f"there is no collection {collection_id}")
            found = Collection(folder, collection_id, engines=self._engines, variant=self._variant)
            self._open[collection_id] = found
            self._damaged.pop(collection_id, None)
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError("the catalog is closed")


@contextmanager
def _clear_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CollectionError(f"{what}: {(error.strerror or 'input/output error').lower()}") from error
