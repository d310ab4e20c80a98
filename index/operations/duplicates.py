"""Finding groups of near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator

from twinlens.index.item import Modality
from twinlens.index.operations.steps import DuplicateGroup, Progress
from twinlens.index.state import CollectionState


def duplicate_groups(
    state: CollectionState, modality: Modality, *, threshold: float, exact: bool | None
) -> Iterator[Progress | DuplicateGroup]:
    """As `Collection.duplicates`."""
    raise NotImplementedError
