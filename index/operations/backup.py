"""Copying a collection to a folder or object store, while it is searched and written."""

from __future__ import annotations

from collections.abc import Iterator

from twinlens.index.operations.steps import Backup, Progress
from twinlens.index.state import CollectionState


def back_up(state: CollectionState, collection_id: str, to: str, *, backup: str = "") -> Iterator[Progress | Backup]:
    """As `Collection.backup`."""
    raise NotImplementedError


def list_backups(root: str, *, collection: str = "", after: str = "", limit: int = 100) -> list[Backup]:
    """A page of the complete backups below a folder or fsspec address, by id, from the one behind `after`.

    Args:
        root: Where backups are kept.
        collection: Only those of this one; empty: all.
        after: Empty, or the id of the last one known.
        limit: How many at most, from 1.

    Raises:
        CollectionError: the place cannot be read.
    """
    raise NotImplementedError
