"""CollectionOperationsService."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing
from typing import TypeVar

from twinlens.index.contract import CollectionLike
from twinlens.index.item import Modality
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.backup_deletion import delete_backup
from twinlens.index.operations.backup_place import BackupPlace
from twinlens.index.operations.export import Export, ExportPage
from twinlens.index.operations.restore import find_backup
from twinlens.index.operations.steps import Backup, DuplicateGroup, Finding, Progress
from twinlens.server.core.app import Application
from twinlens.server.core.call import current_call
from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.core.page import cut, decode_token, page_size
from twinlens.server.services import convert, convert_collection
from twinlens.server.services.interceptor import Context
from twinlens.v1 import collection_operations_pb2 as pb
from twinlens.v1 import collection_operations_pb2_grpc, collection_pb2, content_pb2

T = TypeVar("T")
W = TypeVar("W")

_THRESHOLD = 0.95
_IDS_A_MESSAGE = 1000
_EXPORT_BYTES = 2 * 2**20  # of one message, beyond which it goes out: clients that set nothing take 4 MiB
_VECTOR_BYTES_A_PAGE = 2 * 2**20
_MOST_ITEMS_A_PAGE = 256
_TELL_EVERY_S = 0.25


class CollectionOperationsService(collection_operations_pb2_grpc.CollectionOperationsServiceServicer):
    """What is done to a whole collection."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def MergeCollection(  # noqa: N802 - the wire's name, as below
        self, request: pb.MergeCollectionRequest, context: Context
    ) -> pb.MergeCollectionResponse:
        """Merges now what was written since the last merge."""
        del context
        kind = convert_collection.kind_or_none(request.index_kind)
        collection = await self._collection(request.collection)

        def merge() -> collection_pb2.Collection:
            collection.merge(kind=kind, wait=not request.background)
            return _described(collection)

        # Without waiting it takes no longer than any call, and no place among those that do.
        done = self._soon(merge) if request.background else self._app.operations.run(merge)
        return pb.MergeCollectionResponse(collection=await done)

    async def CheckCollection(  # noqa: N802
        self, request: pb.CheckCollectionRequest, context: Context
    ) -> AsyncGenerator[pb.CheckCollectionResponse, None]:
        """Compares everything stored with everything else."""
        del context
        collection = await self._collection(request.collection)

        def told(event: Progress | Finding) -> Iterator[pb.CheckCollectionResponse]:
            if isinstance(event, Progress):
                yield pb.CheckCollectionResponse(progress=convert_collection.progress(event))
            else:
                yield pb.CheckCollectionResponse(finding=convert_collection.finding(event))

        async for reply in self._app.operations.stream(lambda: _told(collection.check(), told)):
            yield reply

    async def BackupCollection(  # noqa: N802
        self, request: pb.BackupCollectionRequest, context: Context
    ) -> AsyncGenerator[pb.BackupCollectionResponse, None]:
        """Writes a backup below the root of backups."""
        del context
        root = self._backups()
        collection = await self._collection(request.collection)

        def told(event: Progress | Backup) -> Iterator[pb.BackupCollectionResponse]:
            if isinstance(event, Progress):
                yield pb.BackupCollectionResponse(progress=convert_collection.progress(event))
            else:
                yield pb.BackupCollectionResponse(backup=convert_collection.backup(event))

        def begin() -> Iterator[pb.BackupCollectionResponse]:
            return _told(collection.backup(root, backup=request.backup), told)

        async for reply in self._app.operations.stream(begin):
            yield reply

    async def RestoreCollection(  # noqa: N802
        self, request: pb.RestoreCollectionRequest, context: Context
    ) -> AsyncGenerator[pb.RestoreCollectionResponse, None]:
        """Makes a collection of a backup."""
        del context
        root = self._backups()
        if not request.backup:
            raise invalid_argument("the backup's id is empty")

        def told(event: Progress | CollectionLike) -> Iterator[pb.RestoreCollectionResponse]:
            if isinstance(event, Progress):
                yield pb.RestoreCollectionResponse(progress=convert_collection.progress(event))
            else:
                yield pb.RestoreCollectionResponse(collection=_described(event))

        def begin() -> Iterator[pb.RestoreCollectionResponse]:
            self._refuse_other_space(find_backup(BackupPlace(root), request.backup).backup)
            restored = self._app.catalog.restore(root, request.backup, id=request.collection, replace=request.replace)
            return _told(restored, told)

        async for reply in self._app.operations.stream(begin):
            yield reply

    async def ListBackups(  # noqa: N802
        self, request: pb.ListBackupsRequest, context: Context
    ) -> pb.ListBackupsResponse:
        """Lists complete backups by id."""
        del context
        root = self._backups()
        size, after = page_size(request.page_size), decode_token(request.page_token)

        def read() -> pb.ListBackupsResponse:
            found = list_backups(root, collection=request.collection, after=after, limit=size + 1)
            rows, token = cut(found, size, lambda row: row.id)
            return pb.ListBackupsResponse(
                backups=[convert_collection.backup(row) for row in rows], next_page_token=token
            )

        return await self._app.operations.run(read)  # the place may be far away

    async def DeleteBackup(  # noqa: N802
        self, request: pb.DeleteBackupRequest, context: Context
    ) -> pb.DeleteBackupResponse:
        """Deletes a backup."""
        del context
        root = self._backups()
        await self._app.operations.run(lambda: delete_backup(root, request.backup))
        return pb.DeleteBackupResponse()

    async def FindDuplicates(  # noqa: N802
        self, request: pb.FindDuplicatesRequest, context: Context
    ) -> AsyncGenerator[pb.FindDuplicatesResponse, None]:
        """Finds groups of near-duplicates."""
        del context
        modality = convert.modality_or_none(request.modality) or Modality.IMAGE
        threshold = request.threshold if request.HasField("threshold") else _THRESHOLD
        collection = await self._collection(request.collection)
        count = 0

        def told(event: Progress | DuplicateGroup) -> Iterator[pb.FindDuplicatesResponse]:
            nonlocal count
            if isinstance(event, Progress):
                yield pb.FindDuplicatesResponse(progress=convert_collection.progress(event))
                return
            for part in convert_collection.duplicate_groups(count, event, _IDS_A_MESSAGE):
                yield pb.FindDuplicatesResponse(group=part)
            count += 1

        def begin() -> Iterator[pb.FindDuplicatesResponse]:
            return _told(collection.duplicates(modality, threshold=threshold), told)

        async for reply in self._app.operations.stream(begin):
            yield reply

    async def ExportItems(  # noqa: N802
        self, request: pb.ExportItemsRequest, context: Context
    ) -> AsyncGenerator[pb.ExportItemsResponse, None]:
        """Streams items with their vectors."""
        del context
        modalities = {convert.modality_or_none(each) or Modality.IMAGE for each in request.modalities}
        collection = await self._collection(request.collection)
        vector_bytes = 4 * self._app.engine.dimension * len(modalities)
        batch = max(1, min(_MOST_ITEMS_A_PAGE, _VECTOR_BYTES_A_PAGE // max(1, vector_bytes)))
        message_bytes = min(_EXPORT_BYTES, self._app.settings.max_message_bytes // 2)

        def begin() -> Iterator[pb.ExportItemsResponse]:
            return _exported(collection.export(sorted(modalities), filter=request.filter, batch=batch), message_bytes)

        async for reply in self._app.operations.stream(begin):
            yield reply

    async def DropGeneration(  # noqa: N802
        self, request: pb.DropGenerationRequest, context: Context
    ) -> pb.DropGenerationResponse:
        """Removes a generation that is not active."""
        del context
        collection = await self._collection(request.collection)

        def drop() -> collection_pb2.Collection:
            if any(each.active and each.number == request.generation for each in collection.generations()):
                message = f"generation {request.generation} of collection {collection.id} is the active one"
                raise ServiceError(Code.FAILED_PRECONDITION, message)
            collection.drop_generation(request.generation)
            return _described(collection)

        # Its vectors may be millions of rows.
        return pb.DropGenerationResponse(collection=await self._app.operations.run(drop))

    async def CreateMetadataIndex(  # noqa: N802
        self, request: pb.CreateMetadataIndexRequest, context: Context
    ) -> pb.CreateMetadataIndexResponse:
        """Indexes a path into metadata."""
        del context
        collection = await self._collection(request.collection)

        def create() -> collection_pb2.Collection:
            collection.add_metadata_index(request.path)
            return _described(collection)

        return pb.CreateMetadataIndexResponse(collection=await self._app.operations.run(create))

    async def DeleteMetadataIndex(  # noqa: N802
        self, request: pb.DeleteMetadataIndexRequest, context: Context
    ) -> pb.DeleteMetadataIndexResponse:
        """Removes an index of a path into metadata."""
        del context
        collection = await self._collection(request.collection)

        def remove() -> collection_pb2.Collection:
            collection.remove_metadata_index(request.path)
            return _described(collection)

        return pb.DeleteMetadataIndexResponse(collection=await self._app.operations.run(remove))

    async def _collection(self, id: str) -> CollectionLike:  # noqa: A002 - the id is what it is
        return await self._app.collection(id, current_call())

    async def _soon(self, work: Callable[[], T]) -> T:
        return await self._app.io.submit(current_call().priority, work)

    def _backups(self) -> str:
        root = self._app.settings.backups
        if root is None:
            raise ServiceError(
                Code.FAILED_PRECONDITION,
                "this server keeps no backups: set `backups` (TWINLENS_BACKUPS) to a folder or an address on object "
                "storage",
            )
        return root

    def _refuse_other_space(self, backup: Backup) -> None:
        ours = self._app.engine.manifest.space_id
        if backup.space_id != ours:
            raise ServiceError(
                Code.FAILED_PRECONDITION,
                f"backup {backup.id} holds vectors of space {backup.space_id}, but this server's encoder is of space "
                f"{ours}: restore it where its own encoder is served, then move it with `twinlens reindex`",
            )


def _described(collection: CollectionLike) -> collection_pb2.Collection:
    return convert_collection.collection(collection.stats())


def _told(events: Iterator[T], told: Callable[[T], Iterator[W]]) -> Iterator[W]:
    """What to send of events: all but such progress as nobody could read, so fast does it come."""
    step, at_s = "", 0.0
    with closing(events):  # type: ignore[type-var]  # generators all
        for event in events:
            if isinstance(event, Progress):
                now_s = time.monotonic()
                if event.step == step and event.done != event.total and now_s - at_s < _TELL_EVERY_S:
                    continue
                step, at_s = event.step, now_s
            yield from told(event)


def _exported(found: Export, message_bytes: int) -> Iterator[pb.ExportItemsResponse]:
    def message(items: list[pb.ExportedItem]) -> pb.ExportItemsResponse:
        return pb.ExportItemsResponse(
            items=items, space_id=found.space_id, dimension=found.dimension, item_count=found.item_count
        )

    yield message([])  # told at once, and also of an empty collection
    for page in found.pages:
        for items in _cut_by_size(page, message_bytes):
            yield message(items)


def _cut_by_size(page: ExportPage, message_bytes: int) -> Iterator[list[pb.ExportedItem]]:
    """Long captions and metadata of a page may be more than fits a message; no list is much longer than asked for."""
    items: list[pb.ExportedItem] = []
    size_bytes = 0
    for item, vectors in zip(page.items, page.vectors, strict=True):
        wire = pb.ExportedItem(item=convert.item(item))
        if (image := vectors.get(Modality.IMAGE)) is not None:
            wire.image_vector.CopyFrom(content_pb2.Vector(values=image.tolist()))
        if (text := vectors.get(Modality.TEXT)) is not None:
            wire.text_vector.CopyFrom(content_pb2.Vector(values=text.tolist()))
        items.append(wire)
        size_bytes += wire.ByteSize()
        if size_bytes >= message_bytes:
            yield items
            items, size_bytes = [], 0
    if items:
        yield items
