"""What a blocking client does to whole collections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

from twinlens.client import collection_calls, operation_calls
from twinlens.client.calls import Plan
from twinlens.client.collection_types import (
    Backup,
    Collection,
    DuplicateGroup,
    ExportedItem,
    Finding,
    IndexKind,
    ShowProgress,
)
from twinlens.client.errors import TwinlensError
from twinlens.client.types import Modality

R = TypeVar("R")


class CollectionOperations(ABC):
    """The part of a `Client` that is about whole collections.

    From `merge_collection` on, calls take as long as they take: they have no deadline. Iterators ask the server as they
    are advanced; leaving one ends the work, and a server ends that of one which is left unread for ten minutes.
    """

    def create_collection(
        self, collection: str, *, kind: IndexKind | None = None, exist_ok: bool = False
    ) -> Collection:
        """Creates a collection for the server's model.

        Args:
            collection: The id: 1 to 64 of a-z, 0-9, "-" and "_", starting with a letter or digit.
            kind: What finds its vectors; None: as the server is set.
            exist_ok: Return the one of that id if there is one already.

        Raises:
            TwinlensError: ALREADY_EXISTS if there is one of that id and `exist_ok` is False.

        Example:
            >>> client.create_collection("holidays").item_count
            0
        """
        try:
            return self._run(collection_calls.create_collection(collection, kind))
        except TwinlensError as error:
            if not exist_ok or error.code != "ALREADY_EXISTS":
                raise
        return self.get_collection(collection)

    def get_collection(self, collection: str) -> Collection:
        """Describes a collection, with counts.

        Raises:
            TwinlensError: NOT_FOUND if there is none of that id.

        Example:
            >>> client.get_collection("photos").item_count
            4
        """
        return self._run(collection_calls.get_collection(collection))

    def list_collections(self) -> list[Collection]:
        """All collections, by id.

        Example:
            >>> [collection.id for collection in client.list_collections()]
            ['pets', 'photos']
        """
        return list(self._pages(collection_calls.list_collections))

    def delete_collection(self, collection: str) -> None:
        """Deletes a collection and everything in it.

        Example:
            >>> client.delete_collection("photos")
            >>> [collection.id for collection in client.list_collections()]
            ['pets']
        """
        self._run(collection_calls.delete_collection(collection))

    def merge_collection(self, collection: str, *, kind: IndexKind | None = None, wait: bool = True) -> Collection:
        """Merges what was written since the last merge into the indexes, now instead of when it pays.

        Args:
            collection: The collection's id.
            kind: Change the kind of index, for this and all later merges.
            wait: Return when it is done; otherwise at once, and `Collection.indexes` tells when it is.

        Example:
            >>> client.merge_collection("photos", kind="hnsw").indexes[0].pending_count
            0
        """
        return self._run(operation_calls.merge(collection, kind, wait=wait))

    def check_collection(self, collection: str, *, progress: ShowProgress | None = None) -> Iterator[Finding]:
        """Compares everything stored with everything else; nothing found means that all is well.

        Example:
            >>> list(client.check_collection("photos"))
            []
        """
        return cast("Iterator[Finding]", self._stream(operation_calls.check(collection), progress))

    def backup_collection(self, collection: str, backup: str = "", *, progress: ShowProgress | None = None) -> Backup:
        """Writes a backup to the place the server keeps backups in, while it serves.

        Args:
            collection: The collection's id.
            backup: What to call it; empty: the collection's id and the time.
            progress: Told how far it is.

        Raises:
            TwinlensError: FAILED_PRECONDITION where the server keeps no backups, ALREADY_EXISTS if there is one of that
                id.

        Example:
            >>> client.backup_collection("photos", "photos-before-cleaning").item_count
            4
        """
        made = list(self._stream(operation_calls.back_up(collection, backup), progress))
        return cast("Backup", operation_calls.only(made, "backup"))

    def restore_collection(
        self, backup: str, *, collection: str = "", replace: bool = False, progress: ShowProgress | None = None
    ) -> Collection:
        """Makes a collection of a backup, once all of it is verified.

        Args:
            backup: Its id.
            collection: What to call the collection; empty: as the one the backup was made of.
            replace: Put it in the place of a collection of that id, damaged or not.
            progress: Told how far it is.

        Raises:
            TwinlensError: ALREADY_EXISTS if there is a collection of that id and `replace` is False.

        Example:
            >>> backup = client.backup_collection("photos", "photos-before-cleaning")
            >>> client.restore_collection("photos-before-cleaning", collection="photos-old").item_count
            4
        """
        made = list(self._stream(operation_calls.restore(backup, collection, replace=replace), progress))
        return cast("Collection", operation_calls.only(made, "collection"))

    def list_backups(self, *, collection: str = "") -> list[Backup]:
        """Complete backups by id: all, or those of one collection.

        Example:
            >>> made = client.backup_collection("photos", "photos-before-cleaning")
            >>> [backup.id for backup in client.list_backups(collection="photos")]
            ['photos-before-cleaning']
        """
        return list(self._pages(lambda token: operation_calls.list_backups(collection, token)))

    def delete_backup(self, backup: str) -> None:
        """Deletes a backup, complete or damaged; pictures stay where backups are kept, since others may share them.

        Raises:
            TwinlensError: NOT_FOUND if there is none of that id, FAILED_PRECONDITION if anything else is in its folder.

        Example:
            >>> made = client.backup_collection("photos", "photos-before-cleaning")
            >>> client.delete_backup("photos-before-cleaning")
            >>> client.list_backups()
            []
        """
        self._run(operation_calls.delete_backup(backup))

    def find_duplicates(
        self,
        collection: str,
        *,
        modality: Modality = "image",
        threshold: float = 0.95,
        progress: ShowProgress | None = None,
    ) -> Iterator[DuplicateGroup]:
        """Finds groups of items that look or read alike, largest first.

        Args:
            collection: The collection's id.
            modality: Compare the items' pictures ("image") or captions ("text").
            threshold: Lowest cosine that links two items, above 0 to 1.
            progress: Told how far it is.

        Example:
            >>> for group in client.find_duplicates("photos", threshold=0.98):
            ...     print(group.ids)
            ('cat.jpg', '2024/cat.jpg')
        """
        stream = operation_calls.find_duplicates(collection, modality, threshold)
        return cast("Iterator[DuplicateGroup]", self._stream(stream, progress))

    def export_items(
        self,
        collection: str,
        *,
        filter: str = "",  # noqa: A002 - the wire's word
        vectors: Sequence[Modality] = ("image", "text"),
    ) -> Iterator[ExportedItem]:
        """Iterates over all items, by id, with their vectors.

        Args:
            collection: The collection's id.
            filter: Only items that match; empty: all.
            vectors: Whose vectors to bring along.

        Example:
            >>> for each in client.export_items("photos", filter='tag = "cat"', vectors=["image"]):
            ...     print(each.item.id, each.image_vector.shape)
            2024/cat.jpg (384,)
            cat.jpg (384,)
        """
        return cast(
            "Iterator[ExportedItem]", self._stream(operation_calls.export_items(collection, vectors, filter), None)
        )

    def drop_generation(self, collection: str, generation: int) -> Collection:
        """Removes a generation that is not active, and its vectors; `Collection.generations` lists them.

        Example:
            >>> [each.number for each in client.get_collection("photos").generations if not each.active]
            []
            >>> try:
            ...     client.drop_generation("photos", 1)
            ... except TwinlensError as error:
            ...     print(error.code)
            FAILED_PRECONDITION
        """
        return self._run(operation_calls.drop_generation(collection, generation))

    def create_metadata_index(self, collection: str, path: str) -> Collection:
        """Indexes a path into metadata, so that filters on it read few items.

        Example:
            >>> client.create_metadata_index("photos", "camera.model").metadata_indexes
            ('camera.model',)
        """
        return self._run(operation_calls.create_metadata_index(collection, path))

    def delete_metadata_index(self, collection: str, path: str) -> Collection:
        """Removes an index of a path into metadata; filters on it go on to work.

        Example:
            >>> made = client.create_metadata_index("photos", "camera.model")
            >>> client.delete_metadata_index("photos", "camera.model").metadata_indexes
            ()
        """
        return self._run(operation_calls.delete_metadata_index(collection, path))

    @abstractmethod
    def _run(self, plan: Plan[R]) -> R: ...

    @abstractmethod
    def _pages(self, page: Callable[[str], Plan[tuple[list[R], str]]]) -> Iterator[R]: ...

    @abstractmethod
    def _stream(self, stream: operation_calls.Stream, progress: ShowProgress | None) -> Iterator[object]: ...
