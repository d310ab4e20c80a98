"""Checking the files of merged vectors."""

from __future__ import annotations

from collections.abc import Iterator

from twinlens.index.errors import DamagedSegment
from twinlens.index.kinds.segment import check_segment
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.state import CollectionState


def check_segments(state: CollectionState) -> Iterator[Progress | Finding]:
    """Reads every byte of the segments in use."""
    with state.use():
        trees = state.current().trees
    for done, (modality, tree) in enumerate(trees.items()):
        yield Progress("index files", done, len(trees))
        token = tree.token
        if not token:
            continue
        try:
            with state.use():
                check_segment(state.segments / token, state.check_not_closing)
        except DamagedSegment as error:
            if token == tree.token:  # otherwise a merge has put another in its place
                yield Finding(
                    "index", token, f"the merged {modality} vectors are damaged ({error}); merge to rebuild them"
                )
    yield Progress("index files", len(trees), len(trees))
