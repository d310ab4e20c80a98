"""What each operation on a whole collection asks of a server and makes of the answers, for both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twinlens.client import convert, convert_collection
from twinlens.client.calls import Call, Plan
from twinlens.client.collection_types import Backup, Collection
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.metadata import check_text
from twinlens.v1 import collection_operations_pb2 as pb


@dataclass(frozen=True, slots=True)
class Stream:
    """A call whose answer is a stream.

    Attributes:
        call: What to ask.
        read: Makes values of one message: `OperationProgress` for whoever watches, others for the caller.
    """

    call: Call
    read: Callable[[Any], Iterator[object]]


def merge(collection: str, kind: str | None, *, wait: bool) -> Plan[Collection]:
    """Merges a collection's indexes."""
    request = pb.MergeCollectionRequest(
        collection=_id(collection), index_kind=convert_collection.index_kind(kind), background=not wait
    )
    response: pb.MergeCollectionResponse = yield _call("MergeCollection", request)
    return convert_collection.collection(response.collection)


def check(collection: str) -> Stream:
    """Checks a collection."""
    request = pb.CheckCollectionRequest(collection=_id(collection))
    return Stream(_call("CheckCollection", request), convert_collection.check_event)


def back_up(collection: str, backup: str) -> Stream:
    """Backs a collection up."""
    request = pb.BackupCollectionRequest(collection=_id(collection), backup=check_text(backup, "the backup's id"))
    return Stream(_call("BackupCollection", request), convert_collection.backup_event)


def restore(backup: str, collection: str, *, replace: bool) -> Stream:
    """Restores a backup."""
    request = pb.RestoreCollectionRequest(
        backup=check_text(backup, "the backup's id"), collection=_id(collection), replace=replace
    )
    return Stream(_call("RestoreCollection", request), convert_collection.restore_event)


def list_backups(collection: str, page_token: str) -> Plan[tuple[list[Backup], str]]:
    """One page of backups and the token of the next."""
    request = pb.ListBackupsRequest(collection=_id(collection), page_token=page_token)
    response: pb.ListBackupsResponse = yield _call("ListBackups", request)
    return [convert_collection.backup(each) for each in response.backups], response.next_page_token


def delete_backup(backup: str) -> Plan[None]:
    """Deletes a backup."""
    yield _call("DeleteBackup", pb.DeleteBackupRequest(backup=check_text(backup, "the backup's id")))


def find_duplicates(collection: str, modality: str, threshold: float) -> Stream:
    """Finds groups of near-duplicates."""
    request = pb.FindDuplicatesRequest(
        collection=_id(collection), modality=convert.modality(modality), threshold=threshold
    )
    return Stream(_call("FindDuplicates", request), convert_collection.duplicate_events())


def export_items(collection: str, modalities: Sequence[str], filter: str) -> Stream:  # noqa: A002 - the wire's word
    """Reads all items that match."""
    request = pb.ExportItemsRequest(
        collection=_id(collection),
        modalities=[convert.modality(each) for each in modalities],
        filter=check_text(filter, "the filter"),
    )
    return Stream(_call("ExportItems", request), convert_collection.exported_items)


def drop_generation(collection: str, generation: int) -> Plan[Collection]:
    """Drops a generation."""
    if not 1 <= generation < 2**63:
        raise invalid(f"generations are numbered from 1: there is no generation {generation}")
    request = pb.DropGenerationRequest(collection=_id(collection), generation=generation)
    response: pb.DropGenerationResponse = yield _call("DropGeneration", request)
    return convert_collection.collection(response.collection)


def create_metadata_index(collection: str, path: str) -> Plan[Collection]:
    """Indexes a path into metadata."""
    request = pb.CreateMetadataIndexRequest(collection=_id(collection), path=check_text(path, "the path"))
    response: pb.CreateMetadataIndexResponse = yield _call("CreateMetadataIndex", request)
    return convert_collection.collection(response.collection)


def delete_metadata_index(collection: str, path: str) -> Plan[Collection]:
    """Removes an index of a path into metadata."""
    request = pb.DeleteMetadataIndexRequest(collection=_id(collection), path=check_text(path, "the path"))
    response: pb.DeleteMetadataIndexResponse = yield _call("DeleteMetadataIndex", request)
    return convert_collection.collection(response.collection)


def only(values: Sequence[object], what: str) -> object:
    """What a stream was there for.

    Raises:
        TwinlensError: INTERNAL where it ended without.
    """
    if len(values) != 1:
        raise TwinlensError("INTERNAL", f"the server ended its answer without the {what}")
    return values[0]


def _call(method: str, request: Any) -> Call:
    return Call("collection_operations", method, request, long=True)


def _id(collection: str) -> str:
    return check_text(collection, "the collection's id")
