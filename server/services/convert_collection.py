"""Between the wire's messages and what the index room tells of collections and operations on them."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from twinlens.index.catalog import DamagedCollection
from twinlens.index.contract import CollectionLike
from twinlens.index.errors import CollectionNotFound, CorruptCollection
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.steps import Backup, DuplicateGroup, Finding, Progress
from twinlens.index.stats import GenerationState, IndexState, Stats
from twinlens.server.core.errors import invalid_argument
from twinlens.server.services.convert import timestamp
from twinlens.v1 import collection_operations_pb2 as operations_pb
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import content_pb2

_KINDS = {
    Kind.AUTO: pb.INDEX_KIND_AUTO,
    Kind.FLAT: pb.INDEX_KIND_FLAT,
    Kind.HNSW: pb.INDEX_KIND_HNSW,
    Kind.IVF_FLAT: pb.INDEX_KIND_IVF_FLAT,
    Kind.IVF_PQ: pb.INDEX_KIND_IVF_PQ,
}
_NAMED_KINDS = {wire: kind for kind, wire in _KINDS.items()}
_MODALITIES = {Modality.IMAGE: content_pb2.MODALITY_IMAGE, Modality.TEXT: content_pb2.MODALITY_TEXT}


def kind_or_none(value: int) -> Kind | None:
    """A kind of index; None where it is unspecified.

    Raises:
        ServiceError: INVALID_ARGUMENT for a number this version does not know.
    """
    if value == pb.INDEX_KIND_UNSPECIFIED:
        return None
    if value not in _NAMED_KINDS:
        raise invalid_argument(f"index_kind {value} is not known")
    return _NAMED_KINDS[pb.IndexKind.ValueType(value)]


def collection(stats: Stats) -> pb.Collection:
    """A collection with its counts and states."""
    return pb.Collection(
        id=stats.id,
        space_id=stats.space_id,
        dimension=stats.dimension,
        item_count=stats.items,
        image_vector_count=stats.image_vectors,
        text_vector_count=stats.text_vectors,
        create_time=timestamp(stats.created_s),
        variants=stats.variants,
        index_kind=_KINDS[stats.kind],
        indexes=[_index(state) for state in stats.indexes],
        bytes=pb.CollectionBytes(
            database=stats.sizes.database,
            indexes=stats.sizes.indexes,
            images=stats.sizes.pictures,
            memory=stats.sizes.memory,
        ),
        generations=[_generation(state) for state in stats.generations],
        metadata_indexes=stats.metadata_indexes,
    )


def entry(row: CollectionLike | DamagedCollection) -> pb.Collection | None:
    """A collection as a list shows it: one that turns out to be damaged while it is asked is named as such, too.

    None where it was deleted in between.
    """
    if isinstance(row, DamagedCollection):
        return pb.Collection(id=row.id, damage=row.reason)
    try:
        return collection(row.stats())
    except CorruptCollection as error:
        return pb.Collection(id=row.id, damage=str(error))
    except CollectionNotFound:
        return None


def _index(state: IndexState) -> pb.IndexState:
    merge, recall = state.last_merge, state.recall
    return pb.IndexState(
        modality=_MODALITIES[state.modality],
        kind=_KINDS[state.kind],
        merged_count=state.merged,
        pending_count=state.pending,
        hidden_count=state.hidden,
        merging=state.merging,
        merge_time=None if merge.ended_s is None else timestamp(merge.ended_s),
        merge_duration=None if merge.ended_s is None else _duration(merge.took_s),
        merge_error=merge.error,
        recall=None if recall is None else recall.value,
        recall_query_count=0 if recall is None else recall.queries,
    )


def _generation(state: GenerationState) -> pb.Generation:
    return pb.Generation(
        number=state.number,
        space_id=state.space_id,
        dimension=state.dimension,
        active=state.active,
        item_count=state.items,
        create_time=timestamp(state.created_s),
    )


def progress(event: Progress) -> operations_pb.Progress:
    """How far something is."""
    return operations_pb.Progress(step=event.step, done=event.done, total=event.total)


def finding(event: Finding) -> operations_pb.Finding:
    """Something that is wrong."""
    return operations_pb.Finding(part=event.part, subject=event.subject, message=event.message)


def backup(made: Backup) -> operations_pb.Backup:
    """A complete backup."""
    return operations_pb.Backup(
        id=made.id,
        collection=made.collection,
        space_id=made.space_id,
        item_count=made.items,
        total_bytes=made.size_bytes,
        create_time=timestamp(made.created_s),
        missing_image_count=made.missing_pictures,
    )


def duplicate_groups(number: int, group: DuplicateGroup, at_a_time: int) -> list[operations_pb.DuplicateGroup]:
    """A group, cut to messages of so many ids."""
    return [
        operations_pb.DuplicateGroup(
            number=number,
            item_ids=group.ids[start : start + at_a_time],
            score=group.score,
            more=start + at_a_time < len(group.ids),
        )
        for start in range(0, len(group.ids), at_a_time)
    ]


def _duration(seconds: float) -> Duration:
    wire = Duration()
    wire.FromMicroseconds(round(seconds * 1e6))
    return wire
