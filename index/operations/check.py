"""Comparing everything a collection stores with everything else it stores."""

from __future__ import annotations

from collections.abc import Iterator

from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.state import CollectionState


def check_collection(state: CollectionState) -> Iterator[Progress | Finding]:
    """As `Collection.check`."""
    raise NotImplementedError
