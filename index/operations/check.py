"""Comparing everything a collection stores with everything else it stores."""

from __future__ import annotations

from collections.abc import Iterator

from twinlens.index.errors import CorruptCollection
from twinlens.index.operations.checks.database import check_database, check_items
from twinlens.index.operations.checks.pictures import check_pictures, check_strangers
from twinlens.index.operations.checks.segments import check_segments
from twinlens.index.operations.checks.vectors import check_vectors
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.state import CollectionState

_CHECKS = (check_database, check_items, check_vectors, check_segments, check_pictures, check_strangers)


def check_collection(state: CollectionState) -> Iterator[Progress | Finding]:
    """As `Collection.check`."""
    for check in _CHECKS:
        try:
            yield from check(state)
        except CorruptCollection as error:  # so damaged that the rest of this check cannot be read
            yield Finding("database", "", str(error))
