"""What the parts of a collection in Milvus share."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from twinlens.index.errors import CollectionError, CollectionNotFound, SpaceMismatch
from twinlens.index.generations import Generation
from twinlens.index.item import Item
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.connection import MilvusConnection
from twinlens.index.milvus.generations import MilvusGenerations
from twinlens.index.milvus.items import MilvusItems, StoredItem
from twinlens.index.milvus.layout import Layout
from twinlens.index.milvus.pictures import SharedPictures
from twinlens.index.operations.backup_place import BackupPlace
from twinlens.index.rwlock import ReadWriteLock

_UNSEEN_S = 10  # for so long others' changes may go unnoticed by `version`


class MilvusState:
    """An open collection: its items, generations and pictures, and who may do what when.

    Attributes:
        name: What to call the collection in errors, such as "collection photos".
        items: Its items.
        generations: Its vectors.
        pictures: Its originals.
        lost: Keys of vectors that belong to no item, and when that was first seen (monotonic seconds).
        writing: Held while something changes, where Milvus cannot take changes side by side.
    """

    def __init__(self, connection: MilvusConnection, collection_id: str, place: BackupPlace, kind: Kind) -> None:
        """Takes part in a collection, which need not exist yet; nothing is read.

        Args:
            connection: To the Milvus that has it.
            collection_id: What it is called.
            place: Where all collections keep their pictures.
            kind: Over the vectors of generations to come; not `auto`.

        Raises:
            EngineUnavailable: pymilvus is not installed, or Milvus cannot be reached.
        """
        self.name = f"collection {collection_id}"
        self.layout = Layout(collection_id)
        self._connection = connection
        client = connection.open()
        self.items = MilvusItems(connection, client, self.layout.items, self.name)
        self.generations = MilvusGenerations(connection, client, self.layout, kind, self.name)
        self.pictures = SharedPictures(place, collection_id, self.name)
        self.writing = threading.RLock()  # for Milvus Lite, which has one process and takes one change at a time
        self.lost: dict[int, float] = {}
        self._gate = ReadWriteLock()
        self._closed = False
        self._opened = uuid.uuid4().hex
        self._changes = 0

    @property
    def local(self) -> bool:
        """Whether it is Milvus Lite."""
        return self._connection.address.local

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

    @contextmanager
    def change(self) -> Iterator[None]:
        """As `use`, for a call that changes something."""
        with self.use():
            if not self.local:
                yield
            else:
                with self.writing:
                    yield
            self._changes += 1

    @property
    def version(self) -> str:
        """Another one after every change made here, and from time to time for those that others make."""
        return f"{self._opened}:{self._changes}:{int(time.monotonic() / _UNSEEN_S)}"

    def check_space(self, active: Generation, space_id: str) -> None:
        """Refuses vectors of another space.

        Raises:
            SpaceMismatch: both are named.
        """
        if space_id != active.space_id:
            raise SpaceMismatch(f"{self.name} holds vectors of space {active.space_id}, not of space {space_id}")

    def forget(self, replaced: Collection[StoredItem]) -> None:
        """Removes what belonged to items that are replaced or deleted. Trouble only means that some of it stays."""
        if not replaced:
            return
        keys = [stored.key for stored in replaced]
        with suppress(CollectionError):
            for generation in self.generations.all():
                self.generations.forget(generation, keys)
        with suppress(CollectionError):
            self.pictures.remove(
                [(stored.item.content_hash, stored.key) for stored in replaced if stored.item.has_image]
            )

    def by_key(self, keys: Collection[int]) -> dict[int, Item]:
        """The items of those keys that exist."""
        return {stored.key: stored.item for stored in self.items.by_key(keys)}

    def close(self) -> None:
        """Waits for running calls; later ones raise CollectionNotFound."""
        with self._gate.write():
            if not self._closed:
                self._closed = True
                self._connection.release()
