"""Segments for a generation that is about to become the active one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twinlens.index.errors import CollectionError
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.state import CollectionState
from twinlens.index.tree.merge import build_segment, discard_segment, segment_kind
from twinlens.index.tree.segment_rows import SegmentRow, name_segment
from twinlens.index.tree.source import count_vectors


@contextmanager
def built_segments(state: CollectionState, generation: Generation) -> Iterator[None]:
    """Builds the segments of a generation and lets them count; should the block fail, they go again.

    Meanwhile searches and writes of the active generation go on.

    Args:
        state: The collection, kept open by the caller. With another engine than FAISS there is nothing to build.
        generation: Not active. Nobody else may build for it.

    Raises:
        MergeStopped: the collection is being closed.
        CollectionError: the disk is full or read-only, or a vector in the database is damaged.
    """
    built: list[tuple[Modality, SegmentRow]] = []
    try:
        for modality in Modality if state.engines.factory is None else ():
            count = count_vectors(state.database, generation, modality)
            if count < max(1, state.engines.options.least_merged):
                continue
            try:
                row = build_segment(state, generation, modality, segment_kind(state, count, generation.dimension))
            except OSError as error:
                reason = (error.strerror or "input/output error").lower()
                raise CollectionError(
                    f"{state.name}: building the index of generation {generation.number} failed ({reason});"
                    " the active one goes on serving",
                ) from error
            built.append((modality, row))
            with state.writing, state.database.write() as connection:
                name_segment(connection, generation.number, modality, row)
        yield
    except BaseException:
        for modality, row in built:
            discard_segment(state, generation, modality, row)
        raise
