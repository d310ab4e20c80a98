"""One merge: a new segment beside the one that serves, and then a swap."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from twinlens.index.durable import make_folder
from twinlens.index.errors import CollectionError, DamagedSegment, MergeStopped
from twinlens.index.generations import Generation, LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.kinds import auto
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.segment import write_segment
from twinlens.index.tree.catch_up import catch_up
from twinlens.index.tree.changes import newest_change
from twinlens.index.tree.open_trees import open_main
from twinlens.index.tree.segment_rows import SegmentRow, forget_segment, name_segment, reserve_segment
from twinlens.index.tree.source import by_key
from twinlens.index.tree.tidy import discard_folder
from twinlens.index.tree.tree_index import TreeIndex
from twinlens.index.tree.view import View

if TYPE_CHECKING:
    from twinlens.index.state import CollectionState

_FEW = 512  # changes that are caught up with while writers wait


def merge_tree(state: CollectionState, loaded: LoadedGeneration, modality: Modality, *, forced: bool) -> None:
    """Merges all vectors of one modality while searches and writes go on.

    Too few vectors are taken out of their segment instead, unless it is forced.

    Args:
        state: The collection, kept open by the caller.
        loaded: Its active generation.
        modality: Which vectors.
        forced: Make a segment of however few vectors.

    Raises:
        MergeStopped: the collection is being closed, or another generation became active.
        CollectionError: the disk is full or read-only, or a vector in the database is damaged. Nothing has changed.
        OSError: the same, of the segment's files.
    """
    tree, generation = loaded.trees[modality], loaded.generation
    least = 1 if forced else max(1, state.engines.options.least_merged)
    if len(tree) >= least:
        kind = segment_kind(state, len(tree), generation.dimension)
        row = build_segment(state, generation, modality, kind)
    elif tree.merged:
        kind, row = Kind.FLAT, SegmentRow("", _newest(state))
    else:
        return
    before = tree.token
    view: View | None = None
    try:
        view = _fresh_view(state, tree, generation, modality, row)
        _take_over(state, loaded, modality, view, row)
    except BaseException:
        if view is not None:
            view.retire()
        discard_segment(state, generation, modality, row)
        raise
    tree.asked = kind
    discard_folder(state.segments, before)


def segment_kind(state: CollectionState, count: int, dimension: int) -> Kind:
    """Which kind so many vectors of a collection get; never `auto`."""
    if count < auto.LEAST_ROWS:
        return Kind.FLAT  # as `write_segment` does it, so that nothing seems to wait for a merge to another kind
    return auto.choose_kind(state.kind, count, dimension, state.engines.options.memory_bytes)


def build_segment(state: CollectionState, generation: Generation, modality: Modality, kind: Kind) -> SegmentRow:
    """Writes a segment of what a generation holds, which does not count yet.

    From before it is begun changes are logged, so that what happens meanwhile can be caught up with.

    Returns:
        Its name, and the last change that it has seen for certain.
    """
    token = uuid.uuid4().hex
    with state.writing, state.database.write() as connection:
        reserve_segment(connection, generation.number, modality, _reserved(token))
    row = SegmentRow(token, _newest(state))
    try:
        make_folder(state.segments)
        write_segment(
            state.segments / token,
            by_key(state.database, generation, modality, state.name),
            dimension=generation.dimension,
            kind=kind,
            threads=state.engines.threads,
            stop=state.closing.is_set,
        )
    except BaseException:
        discard_segment(state, generation, modality, row)
        raise
    return row


def discard_segment(state: CollectionState, generation: Generation, modality: Modality, row: SegmentRow) -> None:
    """Removes a segment that does not count after all. Trouble with the disk only means that some of it stays."""
    if not row.token:
        return
    discard_folder(state.segments, row.token)
    with suppress(CollectionError), state.writing, state.database.write() as connection:
        for token in (row.token, _reserved(row.token)):
            forget_segment(connection, generation.number, modality, token)


def _fresh_view(
    state: CollectionState, tree: TreeIndex, generation: Generation, modality: Modality, row: SegmentRow
) -> View:
    """A view of the segment, or, where there is none, of all vectors unmerged."""
    if row.token:
        engines = state.engines
        main = open_main(
            state.segments / row.token,
            generation,
            state.name,
            threads=engines.threads,
            device=engines.options.device,
        )
        if main is None:
            raise DamagedSegment("merged vectors cannot be read back from the disk as they were written")
        return tree.new_view(main)
    view = tree.new_view(None)
    for keys, vectors in by_key(state.database, generation, modality, state.name):
        if state.closing.is_set():
            raise MergeStopped("merging was stopped")
        view.delta.upsert(keys, vectors)
    return view


def _take_over(
    state: CollectionState, loaded: LoadedGeneration, modality: Modality, view: View, row: SegmentRow
) -> None:
    """Lets a view follow what was written meanwhile, makes its segment count, and lets searches see it."""
    generation, through, entries = loaded.generation, row.through, 0
    while True:
        with state.database.read() as connection:
            step = catch_up(connection, view, generation, modality, through, state.name, stop=state.closing.is_set)
        through, entries = step.through, entries + step.entries
        if step.entries <= _FEW:
            break
    with state.writing:
        if not state.serves(loaded):
            raise MergeStopped("another generation became active")
        with state.database.write() as connection:
            entries += catch_up(connection, view, generation, modality, through, state.name).entries
            if row.token:
                name_segment(connection, generation.number, modality, row)
            else:
                forget_segment(connection, generation.number, modality)
        loaded.trees[modality].swap(view, row.token, entries)


def _reserved(token: str) -> str:
    return f"{token}_to_be"


def _newest(state: CollectionState) -> int:
    with state.database.read() as connection:
        return newest_change(connection)
