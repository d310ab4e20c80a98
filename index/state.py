"""What the parts of an open collection share: files, engines, and who may do what when."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlens.index import generations, store
from twinlens.index.blobs import BlobStore
from twinlens.index.database import Database
from twinlens.index.engines import Engines
from twinlens.index.errors import CollectionError, CollectionNotFound, SpaceMismatch
from twinlens.index.filters.matching import Matching
from twinlens.index.generations import Generation, LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind, check_kind
from twinlens.index.load import load_generation
from twinlens.index.operations.picture_bytes import PictureBytes
from twinlens.index.operations.recall_audit import RecallAudit
from twinlens.index.rwlock import ReadWriteLock
from twinlens.index.tree.merges import Merges
from twinlens.index.tree.tidy import tidy_segments

DATABASE_FILE = "collection.db"
BLOB_FOLDER = "blobs"
SEGMENTS_FOLDER = "indexes"
SNAPSHOT_PREFIX = ".snapshot-"  # copies of the database on their way to a backup
_DISCARDED_AT_ONCE = 256  # so that writers get their turn


class CollectionState:
    """An open database, its blobs, and the engines of the active generation.

    Attributes:
        folder: Where the collection lies.
        name: What to call the collection in errors, such as "collection photos".
        database: The truth.
        blobs: The originals.
        writing: Held from before a commit until the engines have followed it, so that both change in one order.
        engines: What searches and merges are done with.
        segments: The folder of merged vectors.
        merges: What is merged in the background; nothing with another engine than FAISS.
        audit: What is measured of searches in the background.
        picture_bytes: What stored pictures take.
        matching: Which items matched filters, kept up to date by every write.
        created_s: When the collection was created, in seconds since the epoch.
        kind: Which structure the merged vectors are to get.
        variant: What computes the vectors to come, such as "image int8 on cpu"; kept with their generation.
        closing: Set once somebody waits to close the collection: long calls look at it and end early.
    """

    def __init__(self, folder: Path, name: str, engines: Engines, variant: str = "") -> None:
        """Opens the files and loads the active vectors.

        Args:
            folder: Where the collection lies; nobody else may have it open.
            name: What to call it in errors.
            engines: What the collections of the catalog share.
            variant: See above; empty where it is not known.

        Raises:
            CorruptCollection: damaged, or of a newer schema.
            EngineUnavailable: the engine's package is not installed.
        """
        self.folder = folder
        self.name = name
        self.variant = variant
        self._opened = uuid.uuid4().hex
        self._changes = 0  # guarded by `writing`
        self.writing = threading.Lock()
        self.matching = Matching()
        self.engines = engines
        self.segments = folder / SEGMENTS_FOLDER
        self.merges = Merges(self)
        self.audit = RecallAudit(self)
        self.picture_bytes = PictureBytes(self)
        self._gate = ReadWriteLock()  # held for reading by every call, for writing while closing
        self._closed = False
        self.closing = threading.Event()
        for leftover in folder.glob(f"{SNAPSHOT_PREFIX}*"):
            with suppress(OSError):
                leftover.unlink()
        path = folder / DATABASE_FILE
        crashed = path.with_name(f"{DATABASE_FILE}-wal").exists()  # SQLite removes it on a clean close
        self.database = Database(path, name)
        try:
            self.blobs = BlobStore(folder / BLOB_FOLDER, name)
            with self.database.read() as connection:
                active, self.created_s = generations.find_active(connection, name)
                self.kind = generations.kind_of(connection, name)
                self.loaded: LoadedGeneration | None = load_generation(
                    connection, active, engines, folder=self.segments, name=name
                )
                if crashed:
                    self.blobs.sweep(store.all_blobs(connection))
            if self.loaded.trees:
                tidy_segments(self.database, self.segments, self.loaded)
                engines.maintenance.watch(self.merges)
            engines.maintenance.watch(self.audit)
            engines.maintenance.watch(self.picture_bytes)
        except BaseException:
            self.database.close()
            raise

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps the collection open for the length of a call.

        Raises:
            CollectionNotFound: it was closed or deleted.
        """
        with self._gate.read():
            if self._closed:
                raise CollectionNotFound(f"{self.name} is no longer open")
            yield

    def check_not_closing(self) -> None:
        """Ends a long call early.

        Raises:
            CollectionNotFound: somebody waits to close the collection.
        """
        if self.closing.is_set():
            raise CollectionNotFound(f"{self.name} is being closed")

    @property
    def version(self) -> str:
        """Another one after every change of items or of the active generation, and every time it is opened."""
        return f"{self._opened}:{self._changes}"

    def current(self) -> LoadedGeneration:
        """The active generation. Callers must not hold `writing`."""
        loaded = self.loaded
        if loaded is None:
            with self.writing:
                return self.current_while_writing()
        return loaded

    def current_while_writing(self) -> LoadedGeneration:
        """The active generation; built from the truth again if the engines could not follow an earlier commit."""
        if self.loaded is None:
            with self.database.read() as connection:
                active, _ = generations.find_active(connection, self.name)
            self.loaded = self.load(active)
            self.engines.maintenance.wake(self.merges)
        return self.loaded

    def load(self, generation: Generation) -> LoadedGeneration:
        """Builds the engines of a generation from the truth."""
        with self.database.read() as connection:
            return load_generation(connection, generation, self.engines, folder=self.segments, name=self.name)

    def switch(self, loaded: LoadedGeneration) -> None:
        """Lets searches that begin from now on use this generation; those that run keep theirs."""
        self.loaded = loaded
        self._changes += 1
        self.engines.maintenance.wake(self.merges)

    def serves(self, loaded: LoadedGeneration) -> bool:
        """Whether searches that begin now use this generation. Callers hold `writing`."""
        return self.loaded is loaded

    def follow(self, loaded: LoadedGeneration, vectors: Mapping[int, Mapping[Modality, NDArray[np.float32]]]) -> None:
        """Brings the engines to what was committed. Should that fail, the commit stands and they are built again."""
        if not vectors:
            return  # items that never were have been deleted, say
        self._changes += 1
        self.matching.note(vectors)
        try:
            loaded.replace(vectors)
        except BaseException as error:
            self.loaded = None
            if not isinstance(error, Exception):
                raise
        self.engines.maintenance.wake(self.merges)

    def merge(self, *, kind: Kind | None, wait: bool) -> None:
        """As `Collection.merge`."""
        with self.use():
            if kind is not None:
                asked = check_kind(kind)
                with self.writing:
                    with self.database.write() as connection:
                        generations.set_kind(connection, asked)
                    self.kind = asked
            if not self.current().trees:
                return
            done = self.merges.request()
        if wait:
            done.result()

    def check_space(self, loaded: LoadedGeneration, space_id: str) -> int:
        """Returns the dimension if the space is that of the generation.

        Raises:
            SpaceMismatch: it is another; both are named.
        """
        active = loaded.generation
        if space_id != active.space_id:
            raise SpaceMismatch(f"{self.name} holds vectors of space {active.space_id}, not of space {space_id}")
        return active.dimension

    def discard_blobs(self, digests: set[str]) -> None:
        """Removes the blobs among these that no item has any more. Callers must not hold `writing`.

        What led here is done or undone already, so trouble with the disk only means that they stay.
        """
        remaining = iter(digests)
        while some := list(itertools.islice(remaining, _DISCARDED_AT_ONCE)):
            with suppress(CollectionError), self.writing, self.database.read() as connection:
                self.blobs.discard(store.unnamed_blobs(connection, some))

    def close(self) -> None:
        """Waits for running calls and closes everything; later calls raise CollectionNotFound."""
        self.closing.set()
        with self._gate.write():
            if self._closed:
                return
            self._closed = True
            self.engines.maintenance.forget(self.merges)
            self.engines.maintenance.forget(self.audit)
            self.engines.maintenance.forget(self.picture_bytes)
            self.merges.cancel()
            with ExitStack() as closing:  # whatever fails to close, the rest is closed
                closing.callback(self.database.close)
                for engine in self.loaded.engines.values() if self.loaded is not None else ():
                    closing.callback(engine.close)
                self.discard_blobs(self.blobs.release(every=True))
