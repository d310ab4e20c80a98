"""What an asynchronous client does to whole collections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
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


class AsyncCollectionOperations(ABC):
    """The part of an `AsyncClient` that is about whole collections; see `CollectionOperations`, method by method."""

    async def create_collection(
        self, collection: str, *, kind: IndexKind | None = None, exist_ok: bool = False
    ) -> Collection:
        """Creates a collection; see `Client.create_collection`.

        Example:
            >>> (await client.create_collection("holidays")).item_count
            0
        """
        try:
            return await self._run(collection_calls.create_collection(collection, kind))
        except TwinlensError as error:
            if not exist_ok or error.code != "ALREADY_EXISTS":
                raise
        return await self.get_collection(collection)

    async def get_collection(self, collection: str) -> Collection:
        """Describes a collection; see `Client.get_collection`.

        Example:
            >>> (await client.get_collection("photos")).item_count
            4
        """
        return await self._run(collection_calls.get_collection(collection))

    async def list_collections(self) -> list[Collection]:
        """All collections, by id.

        Example:
            >>> [collection.id for collection in await client.list_collections()]
            ['pets', 'photos']
        """
        return [each async for each in self._pages(collection_calls.list_collections)]

    async def delete_collection(self, collection: str) -> None:
        """Deletes a collection and everything in it.

        Example:
            >>> await client.delete_collection("photos")
        """
        await self._run(collection_calls.delete_collection(collection))

    async def merge_collection(
        self, collection: str, *, kind: IndexKind | None = None, wait: bool = True
    ) -> Collection:
        """Merges what was written since the last merge; see `Client.merge_collection`.

        Example:
            >>> (await client.merge_collection("photos", kind="hnsw")).indexes[0].pending_count
            0
        """
        return await self._run(operation_calls.merge(collection, kind, wait=wait))

    def check_collection(self, collection: str, *, progress: ShowProgress | None = None) -> AsyncIterator[Finding]:
        """Compares everything stored with everything else; see `Client.check_collection`.

        Example:
            >>> [finding async for finding in client.check_collection("photos")]
            []
        """
        return cast("AsyncIterator[Finding]", self._stream(operation_calls.check(collection), progress))

    async def backup_collection(
        self, collection: str, backup: str = "", *, progress: ShowProgress | None = None
    ) -> Backup:
        """Writes a backup to the place the server keeps backups in; see `Client.backup_collection`.

        Example:
            >>> (await client.backup_collection("photos", "photos-before-cleaning")).item_count
            4
        """
        made = [each async for each in self._stream(operation_calls.back_up(collection, backup), progress)]
        return cast("Backup", operation_calls.only(made, "backup"))

    async def restore_collection(
        self, backup: str, *, collection: str = "", replace: bool = False, progress: ShowProgress | None = None
    ) -> Collection:
        """Makes a collection of a backup, once all of it is verified; see `Client.restore_collection`.

        Example:
            >>> backup = await client.backup_collection("photos", "photos-before-cleaning")
            >>> (await client.restore_collection(backup.id, collection="photos-old")).item_count
            4
        """
        stream = operation_calls.restore(backup, collection, replace=replace)
        made = [each async for each in self._stream(stream, progress)]
        return cast("Collection", operation_calls.only(made, "collection"))

    async def list_backups(self, *, collection: str = "") -> list[Backup]:
        """Complete backups by id: all, or those of one collection.

        Example:
            >>> made = await client.backup_collection("photos", "photos-before-cleaning")
            >>> [backup.id for backup in await client.list_backups(collection="photos")]
            ['photos-before-cleaning']
        """
        return [each async for each in self._pages(lambda token: operation_calls.list_backups(collection, token))]

    async def delete_backup(self, backup: str) -> None:
        """Deletes a backup; see `Client.delete_backup`.

        Example:
            >>> made = await client.backup_collection("photos", "photos-before-cleaning")
            >>> await client.delete_backup("photos-before-cleaning")
        """
        await self._run(operation_calls.delete_backup(backup))

    def find_duplicates(
        self,
        collection: str,
        *,
        modality: Modality = "image",
        threshold: float = 0.95,
        progress: ShowProgress | None = None,
    ) -> AsyncIterator[DuplicateGroup]:
        """Finds groups of items that look or read alike, largest first; see `Client.find_duplicates`.

        Example:
            >>> async for group in client.find_duplicates("photos", threshold=0.98):
            ...     print(group.ids)
            ('cat.jpg', '2024/cat.jpg')
        """
        stream = operation_calls.find_duplicates(collection, modality, threshold)
        return cast("AsyncIterator[DuplicateGroup]", self._stream(stream, progress))

    def export_items(
        self,
        collection: str,
        *,
        filter: str = "",  # noqa: A002 - the wire's word
        vectors: Sequence[Modality] = ("image", "text"),
    ) -> AsyncIterator[ExportedItem]:
        """Iterates over all items, by id, with their vectors; see `Client.export_items`.

        Example:
            >>> [each.item.id async for each in client.export_items("photos", filter='tag = "cat"', vectors=[])]
            ['2024/cat.jpg', 'cat.jpg']
        """
        stream = operation_calls.export_items(collection, vectors, filter)
        return cast("AsyncIterator[ExportedItem]", self._stream(stream, None))

    async def drop_generation(self, collection: str, generation: int) -> Collection:
        """Removes a generation that is not active, and its vectors.

        Example:
            >>> try:
            ...     await client.drop_generation("photos", 1)
            ... except TwinlensError as error:
            ...     print(error.code)
            FAILED_PRECONDITION
        """
        return await self._run(operation_calls.drop_generation(collection, generation))

    async def create_metadata_index(self, collection: str, path: str) -> Collection:
        """Indexes a path into metadata, so that filters on it read few items.

        Example:
            >>> (await client.create_metadata_index("photos", "camera.model")).metadata_indexes
            ('camera.model',)
        """
        return await self._run(operation_calls.create_metadata_index(collection, path))

    async def delete_metadata_index(self, collection: str, path: str) -> Collection:
        """Removes an index of a path into metadata; filters on it go on to work.

        Example:
            >>> made = await client.create_metadata_index("photos", "camera.model")
            >>> (await client.delete_metadata_index("photos", "camera.model")).metadata_indexes
            ()
        """
        return await self._run(operation_calls.delete_metadata_index(collection, path))

    @abstractmethod
    async def _run(self, plan: Plan[R]) -> R: ...

    @abstractmethod
    def _pages(self, page: Callable[[str], Plan[tuple[list[R], str]]]) -> AsyncIterator[R]: ...

    @abstractmethod
    def _stream(self, stream: operation_calls.Stream, progress: ShowProgress | None) -> AsyncIterator[object]: ...
