"""Between the wire and plain values: collections, and operations on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import cast, get_args

import numpy as np
from google.protobuf.timestamp_pb2 import Timestamp
from numpy.typing import NDArray

from twinlens.client import collection_types as types
from twinlens.client.convert import item
from twinlens.client.errors import invalid
from twinlens.client.types import Modality
from twinlens.v1 import collection_operations_pb2, collection_pb2, content_pb2

_KINDS = {
    "auto": collection_pb2.INDEX_KIND_AUTO,
    "flat": collection_pb2.INDEX_KIND_FLAT,
    "hnsw": collection_pb2.INDEX_KIND_HNSW,
    "ivf_flat": collection_pb2.INDEX_KIND_IVF_FLAT,
    "ivf_pq": collection_pb2.INDEX_KIND_IVF_PQ,
}
_KIND_NAMES = {wire: name for name, wire in _KINDS.items()}


def index_kind(name: str | None) -> collection_pb2.IndexKind.ValueType:
    """The wire form of a kind; None leaves it to the server.

    Raises:
        TwinlensError: INVALID_ARGUMENT for a name that is none.
    """
    if name is None:
        return collection_pb2.INDEX_KIND_UNSPECIFIED
    if name not in _KINDS:
        raise invalid(f"an index kind is one of {', '.join(get_args(types.IndexKind))}, not {name!r}")
    return _KINDS[name]


def collection(wire: collection_pb2.Collection) -> types.Collection:
    """A collection, its counts and states."""
    return types.Collection(
        id=wire.id,
        space_id=wire.space_id,
        dimension=wire.dimension,
        item_count=wire.item_count,
        image_vector_count=wire.image_vector_count,
        text_vector_count=wire.text_vector_count,
        create_time=_time(wire.create_time),
        variants=tuple(wire.variants),
        index_kind=_kind(wire.index_kind),
        indexes=tuple(_index(each) for each in wire.indexes),
        bytes=types.CollectionBytes(wire.bytes.database, wire.bytes.indexes, wire.bytes.images, wire.bytes.memory),
        generations=tuple(_generation(each) for each in wire.generations),
        metadata_indexes=tuple(wire.metadata_indexes),
        damage=" ".join(wire.damage.split()),
    )


def _index(wire: collection_pb2.IndexState) -> types.IndexState:
    modality: Modality = "text" if wire.modality == content_pb2.MODALITY_TEXT else "image"
    return types.IndexState(
        modality=modality,
        kind=_kind(wire.kind),
        merged_count=wire.merged_count,
        pending_count=wire.pending_count,
        hidden_count=wire.hidden_count,
        merging=wire.merging,
        merge_time=_time(wire.merge_time) if wire.HasField("merge_time") else None,
        merge_s=wire.merge_duration.ToTimedelta().total_seconds(),
        merge_error=" ".join(wire.merge_error.split()),
        recall=wire.recall if wire.HasField("recall") else None,
        recall_query_count=wire.recall_query_count,
    )


def _kind(wire: int) -> types.IndexKind:
    # A newer server may have kinds that this client has no name for.
    return cast("types.IndexKind", _KIND_NAMES.get(cast("collection_pb2.IndexKind.ValueType", wire), "auto"))


def _generation(wire: collection_pb2.Generation) -> types.Generation:
    return types.Generation(
        number=wire.number,
        space_id=wire.space_id,
        dimension=wire.dimension,
        active=wire.active,
        item_count=wire.item_count,
        create_time=_time(wire.create_time),
    )


def progress(wire: collection_operations_pb2.Progress) -> types.OperationProgress:
    """How far an operation is."""
    return types.OperationProgress(wire.step, wire.done, wire.total)


def backup(wire: collection_operations_pb2.Backup) -> types.Backup:
    """A backup."""
    return types.Backup(
        id=wire.id,
        collection=wire.collection,
        space_id=wire.space_id,
        item_count=wire.item_count,
        total_bytes=wire.total_bytes,
        create_time=_time(wire.create_time),
        missing_image_count=wire.missing_image_count,
    )


def check_event(wire: collection_operations_pb2.CheckCollectionResponse) -> Iterator[object]:
    """Progress, or a finding."""
    match wire.WhichOneof("event"):
        case "progress":
            yield progress(wire.progress)
        case "finding":
            found = wire.finding
            yield types.Finding(found.part, found.subject, " ".join(found.message.split()))


def backup_event(wire: collection_operations_pb2.BackupCollectionResponse) -> Iterator[object]:
    """Progress, or the backup."""
    match wire.WhichOneof("event"):
        case "progress":
            yield progress(wire.progress)
        case "backup":
            yield backup(wire.backup)


def restore_event(wire: collection_operations_pb2.RestoreCollectionResponse) -> Iterator[object]:
    """Progress, or the collection."""
    match wire.WhichOneof("event"):
        case "progress":
            yield progress(wire.progress)
        case "collection":
            yield collection(wire.collection)


def duplicate_events() -> Callable[[collection_operations_pb2.FindDuplicatesResponse], Iterator[object]]:
    """What makes progress and whole groups of messages, in which a large group comes in parts."""
    ids: list[str] = []

    def read(wire: collection_operations_pb2.FindDuplicatesResponse) -> Iterator[object]:
        match wire.WhichOneof("event"):
            case "progress":
                yield progress(wire.progress)
            case "group":
                ids.extend(wire.group.item_ids)
                if not wire.group.more:
                    yield types.DuplicateGroup(tuple(ids), wire.group.score)
                    ids.clear()

    return read


def exported_items(wire: collection_operations_pb2.ExportItemsResponse) -> Iterator[object]:
    """The items of a message."""
    for each in wire.items:
        yield types.ExportedItem(
            item=item(each.item),
            space_id=wire.space_id,
            image_vector=_vector(each.image_vector) if each.HasField("image_vector") else None,
            text_vector=_vector(each.text_vector) if each.HasField("text_vector") else None,
        )


def _vector(wire: content_pb2.Vector) -> NDArray[np.float32]:
    return np.asarray(wire.values, dtype=np.float32)


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
