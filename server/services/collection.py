"""CollectionService."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from twinlens.index.catalog import DamagedCollection
from twinlens.index.contract import CatalogLike, CollectionLike
from twinlens.index.item import Modality
from twinlens.index.stats import Stats
from twinlens.server.core.app import Application
from twinlens.server.core.call import current_call
from twinlens.server.core.caller import Caller, Scope
from twinlens.server.core.errors import ItemFailure, Reason, invalid_argument
from twinlens.server.core.incoming import Incoming
from twinlens.server.core.page import cut, decode_token, page_size
from twinlens.server.services import convert, convert_collection
from twinlens.server.services.interceptor import Context
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import collection_pb2_grpc

MAX_IDS = 10_000
# Collections at a time, where most of them may be others'.
_LOOKED_AT = 100


class CollectionService(collection_pb2_grpc.CollectionServiceServicer):
    """Keeps items."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def CreateCollection(  # noqa: N802 - the wire's name, as below
        self, request: pb.CreateCollectionRequest, context: Context
    ) -> pb.CreateCollectionResponse:
        """Creates a collection for the model that is loaded."""
        del context
        manifest = self._app.engine.manifest
        kind = convert_collection.kind_or_none(request.index_kind)

        def create() -> Stats:
            made = self._app.catalog.create(
                request.collection, space_id=manifest.space_id, dimension=manifest.dimension, kind=kind
            )
            return made.stats()

        stats = await self._app.io.submit(current_call().priority, create)
        return pb.CreateCollectionResponse(collection=convert_collection.collection(stats))

    async def GetCollection(  # noqa: N802
        self, request: pb.GetCollectionRequest, context: Context
    ) -> pb.GetCollectionResponse:
        """Describes a collection."""
        del context
        collection = await self._collection(request.collection)
        stats = await self._app.io.submit(current_call().priority, collection.stats)
        return pb.GetCollectionResponse(collection=convert_collection.collection(stats))

    async def ListCollections(  # noqa: N802
        self, request: pb.ListCollectionsRequest, context: Context
    ) -> pb.ListCollectionsResponse:
        """Lists collections by id."""
        del context
        size, after = page_size(request.page_size), decode_token(request.page_token)
        rights = current_call().rights
        all_of_them = rights is None or rights.may_everywhere(Scope.READ)

        def read() -> pb.ListCollectionsResponse:
            readable = _readable(self._app.catalog, rights, after, size + 1 if all_of_them else _LOOKED_AT)
            rows, token = cut(list(islice(readable, size + 1)), size, lambda row: row.id)
            collections = [shown for row in rows if (shown := convert_collection.entry(row)) is not None]
            return pb.ListCollectionsResponse(collections=collections, next_page_token=token)

        return await self._app.io.submit(current_call().priority, read)

    async def DeleteCollection(  # noqa: N802
        self, request: pb.DeleteCollectionRequest, context: Context
    ) -> pb.DeleteCollectionResponse:
        """Deletes a collection and everything in it."""
        del context
        # Not opened first: that loads its vectors, and a damaged one could not be deleted.
        await self._app.io.submit(current_call().priority, self._app.catalog.delete, request.collection)
        return pb.DeleteCollectionResponse()

    async def UpsertItems(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.UpsertItemsRequest], context: Context
    ) -> pb.UpsertItemsResponse:
        """Inserts or replaces items; what it counts as stored is on disk."""
        del context
        first = await anext(aiter(request_iterator), None)
        if first is None:
            raise invalid_argument("the stream is empty: its first message names the collection")
        collection = await self._collection(first.collection)
        if first.space_id:
            self._app.upserter.check_space(first.space_id)
        call = current_call()
        report = await self._app.upserter.upsert(collection, _incoming(collection.id, first, request_iterator), call)

        def reply() -> pb.UpsertItemsResponse:
            return pb.UpsertItemsResponse(
                model=convert.model_info(self._app.engine.manifest),
                stored_count=report.stored,
                failures=[
                    pb.UpsertFailure(position=entry.position, id=entry.id, error=convert.item_error(entry.failure))
                    for entry in report.failures
                ],
                truncated_count=report.truncated,
            )

        # A long stream may have hundreds of thousands of failures: not on the event loop.
        return await self._app.io.submit(call.priority, reply)

    async def GetItem(self, request: pb.GetItemRequest, context: Context) -> pb.GetItemResponse:  # noqa: N802
        """Returns one item."""
        del context
        collection = await self._collection(request.collection)
        if not request.id:
            raise invalid_argument("the item's id is empty")

        def read() -> pb.GetItemResponse:
            item = collection.get(request.id)
            image = collection.get_image(request.id) if request.include_image and item.has_image else b""
            return pb.GetItemResponse(item=convert.item(item), image=image)

        return await self._app.io.submit(current_call().priority, read)

    async def ListItems(self, request: pb.ListItemsRequest, context: Context) -> pb.ListItemsResponse:  # noqa: N802
        """Lists items by id."""
        del context
        size, after = page_size(request.page_size), decode_token(request.page_token)
        collection = await self._collection(request.collection)

        def read() -> pb.ListItemsResponse:
            rows = collection.list(after=after, limit=size + 1, filter=request.filter)
            items = _fitting(map(convert.item, rows[:size]), self._app.settings.max_message_bytes // 2)
            _, token = cut(rows, len(items), lambda row: row.id)
            return pb.ListItemsResponse(items=items, next_page_token=token)

        return await self._app.io.submit(current_call().priority, read)

    async def CountItems(self, request: pb.CountItemsRequest, context: Context) -> pb.CountItemsResponse:  # noqa: N802
        """Counts the items that match."""
        del context
        collection = await self._collection(request.collection)
        count = await self._app.io.submit(current_call().priority, collection.count, request.filter)
        return pb.CountItemsResponse(count=count)

    async def DeleteItems(  # noqa: N802
        self, request: pb.DeleteItemsRequest, context: Context
    ) -> pb.DeleteItemsResponse:
        """Deletes items, by id or all that match; ids that do not exist are not an error."""
        del context
        if request.filter and request.ids:
            raise invalid_argument("items are deleted by ids or by a filter, not by both")
        if not request.filter and not 1 <= len(request.ids) <= MAX_IDS:
            raise invalid_argument(f"a request has 1 to {MAX_IDS} ids, not {len(request.ids)}, or a filter")
        collection = await self._collection(request.collection)

        if request.filter:  # perhaps most of a large collection
            deleted = await self._app.operations.run(lambda: collection.delete(filter=request.filter))
        else:
            deleted = await self._app.io.submit(current_call().priority, collection.delete, list(request.ids))
        return pb.DeleteItemsResponse(deleted_count=deleted)

    async def _collection(self, id: str) -> CollectionLike:  # noqa: A002 - the id is what it is
        return await self._app.collection(id, current_call())


def _readable(
    catalog: CatalogLike, rights: Caller | None, after: str, at_a_time: int
) -> Iterator[CollectionLike | DamagedCollection]:
    """The collections that a caller may know of, by id; so many are opened at a time."""
    while True:
        rows = catalog.entries(after=after, limit=at_a_time)
        yield from (row for row in rows if rights is None or rights.may(Scope.READ, row.id))
        if len(rows) < at_a_time:
            return
        after = rows[-1].id


async def _incoming(
    collection: str, first: pb.UpsertItemsRequest, rest: AsyncIterator[pb.UpsertItemsRequest]
) -> AsyncIterator[Incoming]:
    position = 0

    def of_message(message: pb.UpsertItemsRequest) -> Iterator[Incoming]:
        nonlocal position
        for item in message.items:
            incoming = _item(position, item)
            if incoming.vectors and not first.space_id:
                raise invalid_argument(
                    f"item {position} brings a vector, but the first message does not say of which space (`space_id`)"
                )
            yield incoming
            position += 1

    for incoming in of_message(first):
        yield incoming
    async for message in rest:
        if message.collection not in {"", collection}:
            raise invalid_argument("all messages of one stream name the same collection")
        if message.space_id not in {"", first.space_id}:
            raise invalid_argument("all messages of one stream name the same space")
        for incoming in of_message(message):
            yield incoming


def _item(position: int, item: pb.NewItem) -> Incoming:
    size_bytes = item.ByteSize()
    try:
        metadata = convert.metadata(item.metadata)
    except ValueError as error:
        fault = ItemFailure(Reason.INVALID_INPUT, str(error))
        return Incoming(position, id=item.id, size_bytes=size_bytes, fault=fault)
    if item.image and item.image_url:
        fault = ItemFailure(Reason.INVALID_INPUT, "the item has both image and image_url; give one of them")
        return Incoming(position, id=item.id, size_bytes=size_bytes, fault=fault)
    return Incoming(
        position=position,
        id=item.id,
        uri=item.uri,
        caption=item.caption,
        image=item.image,
        image_url=item.image_url,
        vectors=_vectors(item),
        metadata=metadata,
        size_bytes=size_bytes,
    )


def _vectors(item: pb.NewItem) -> dict[Modality, NDArray[np.float32]]:
    vectors = {}
    if item.HasField("image_vector"):
        vectors[Modality.IMAGE] = np.asarray(item.image_vector.values, dtype=np.float32)
    if item.HasField("text_vector"):
        vectors[Modality.TEXT] = np.asarray(item.text_vector.values, dtype=np.float32)
    return vectors


def _fitting(items: Iterable[pb.Item], max_bytes: int) -> list[pb.Item]:
    """As many of the first items as fit, at least one: a page of long captions and metadata must fit a message."""
    page: list[pb.Item] = []
    left = max_bytes
    for item in items:
        left -= item.ByteSize()
        if left < 0 and page:
            break
        page.append(item)
    return page
