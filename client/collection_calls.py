"""What each method on collections and their items asks of a server and makes of the answers, for both clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized

from google.protobuf.message import Message

from twinlens.client import convert, convert_collection, types
from twinlens.client.calls import MAX_BYTES, Call, Plan, sendable, several, wire_size
from twinlens.client.collection_types import Collection, OperationProgress
from twinlens.client.errors import invalid
from twinlens.client.limits import SURE_BYTES, Kind, fitting
from twinlens.client.metadata import check_text
from twinlens.client.split import split
from twinlens.v1 import collection_pb2

# Below the limits of the wire contract, so that answers fit a message too and other callers get their turn between.
MAX_DELETED = 10_000
MAX_MESSAGE_ITEMS = 256
MAX_STREAM_ITEMS = 512  # of one upsert; each is acknowledged, durably, before the next begins
MAX_STREAM_BYTES = 48 * 1024 * 1024

# Items are not counted against what a server works on at a time: they wait for their turn.
_ITEMS = Kind(lambda _: 0, "INVALID_INPUT")


def create_collection(collection: str, kind: str | None) -> Plan[Collection]:
    """Creates a collection."""
    request = collection_pb2.CreateCollectionRequest(
        collection=check_text(collection, "the collection's id"), index_kind=convert_collection.index_kind(kind)
    )
    response: collection_pb2.CreateCollectionResponse = yield Call("collection", "CreateCollection", request, True)
    return convert_collection.collection(response.collection)


def get_collection(collection: str) -> Plan[Collection]:
    """Describes a collection."""
    request = collection_pb2.GetCollectionRequest(collection=check_text(collection, "the collection's id"))
    response: collection_pb2.GetCollectionResponse = yield Call("collection", "GetCollection", request)
    return convert_collection.collection(response.collection)


def list_collections(page_token: str) -> Plan[tuple[list[Collection], str]]:
    """One page of collections and the token of the next."""
    request = collection_pb2.ListCollectionsRequest(page_token=page_token)
    response: collection_pb2.ListCollectionsResponse = yield Call("collection", "ListCollections", request)
    return [convert_collection.collection(each) for each in response.collections], response.next_page_token


def delete_collection(collection: str) -> Plan[None]:
    """Deletes a collection."""
    request = collection_pb2.DeleteCollectionRequest(collection=check_text(collection, "the collection's id"))
    yield Call("collection", "DeleteCollection", request, True)


def upsert(collection: str, items: Iterable[types.NewItem], space_id: str) -> Plan[types.UpsertReport]:
    """Stores items, one stream after the other; tells after each how many were given and dealt with."""
    check_text(collection, "the collection's id")
    total = len(items) if isinstance(items, Sized) else 0
    stored = truncated = start = 0
    failures: list[types.UpsertFailure] = []
    model: types.ModelInfo | None = None
    pairs = ((item.id, convert.new_item(item)) for item in items)
    for batch in split(pairs, lambda pair: wire_size(pair[1]), max_count=MAX_STREAM_ITEMS, max_bytes=MAX_STREAM_BYTES):
        errors: dict[int, types.ItemError] = {}
        pieces = yield from fitting([wire for _, wire in batch], wire_size, _ITEMS)
        sent = sendable([wire for piece in pieces for wire in piece], errors, start)
        here = [
            types.UpsertFailure(position, batch[position - start][0], why.reason, why.message)
            for position, why in errors.items()
        ]
        if sent:
            messages = tuple(message for piece in pieces for message in _messages(collection, piece, space_id))
            response: collection_pb2.UpsertItemsResponse = yield Call("collection", "UpsertItems", messages, True)
            model = convert.model_info(response.model)
            stored += response.stored_count
            truncated += response.truncated_count
            here += [convert.upsert_failure(each, *sent[each.position]) for each in response.failures]
        failures += sorted(here, key=lambda failure: failure.position)
        start += len(batch)
        yield OperationProgress("stored", start, total)
    return types.UpsertReport(stored=stored, failures=tuple(failures), truncated=truncated, model=model)


def _messages(
    collection: str, piece: Sequence[collection_pb2.NewItem | types.ItemError], space_id: str
) -> Iterator[Message]:
    items = [each for each in piece if not isinstance(each, types.ItemError)]
    for batch in split(items, wire_size, max_count=MAX_MESSAGE_ITEMS, max_bytes=MAX_BYTES):
        yield collection_pb2.UpsertItemsRequest(collection=collection, items=batch, space_id=space_id)


def get_item(collection: str, item_id: str, *, include_image: bool) -> Plan[types.Item]:
    """Returns one item."""
    request = collection_pb2.GetItemRequest(
        collection=check_text(collection, "the collection's id"),
        id=check_text(item_id, "the item's id"),
        include_image=include_image,
    )
    response: collection_pb2.GetItemResponse = yield Call("collection", "GetItem", request)
    return convert.item(response.item, response.image or None)


def list_items(
    collection: str,
    page_token: str,
    page_size: int,
    filter: str = "",  # noqa: A002
) -> Plan[tuple[list[types.Item], str]]:
    """One page of items and the token of the next."""
    request = collection_pb2.ListItemsRequest(
        collection=check_text(collection, "the collection's id"),
        page_size=max(-1, min(page_size, 2**31 - 1)),
        page_token=page_token,
        filter=check_text(filter, "the filter"),
    )
    response: collection_pb2.ListItemsResponse = yield Call("collection", "ListItems", request)
    return [convert.item(each) for each in response.items], response.next_page_token


def count_items(collection: str, filter: str) -> Plan[int]:  # noqa: A002
    """Counts the items that match."""
    request = collection_pb2.CountItemsRequest(
        collection=check_text(collection, "the collection's id"), filter=check_text(filter, "the filter")
    )
    response: collection_pb2.CountItemsResponse = yield Call("collection", "CountItems", request)
    return response.count


def delete_items(collection: str, ids: Iterable[str], filter: str = "") -> Plan[int]:  # noqa: A002
    """Deletes items, by id or those that match, and counts those that existed."""
    check_text(collection, "the collection's id")
    if filter:
        if list(several(ids, "ids")):
            raise invalid("items are deleted by ids or by a filter, not by both")
        by_filter = collection_pb2.DeleteItemsRequest(collection=collection, filter=check_text(filter, "the filter"))
        answer: collection_pb2.DeleteItemsResponse = yield Call("collection", "DeleteItems", by_filter, True, True)
        return answer.deleted_count
    deleted = 0
    checked = (check_text(each, "an item's id") for each in several(ids, "ids"))
    for batch in split(checked, _id_bytes, max_count=MAX_DELETED, max_bytes=SURE_BYTES):
        request = collection_pb2.DeleteItemsRequest(collection=collection, ids=batch)
        response: collection_pb2.DeleteItemsResponse = yield Call("collection", "DeleteItems", request, True)
        deleted += response.deleted_count
    return deleted


def _id_bytes(item_id: str) -> int:
    return len(item_id.encode()) + 4
