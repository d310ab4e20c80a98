"""Removing items, also from a disk that is full."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from twinlens.index import store
from twinlens.index.state import CollectionState


def delete_found(state: CollectionState, find: Callable[[sqlite3.Connection], Sequence[store.Row]]) -> int:
    """Removes items in one transaction, and their pictures.

    Args:
        state: Of the collection.
        find: Tells which, inside the transaction; called once more where the disk was full.

    Returns:
        How many there were.
    """

    def delete() -> Sequence[store.Row]:
        with state.database.write() as connection:
            rows = find(connection)
            store.delete_items(connection, [row.key for row in rows])
            return rows

    with state.use():
        with state.writing:
            loaded = state.current_while_writing()
            rows = state.engines.reserve.lend(delete)
            state.follow(loaded, {row.key: {} for row in rows})
        state.discard_blobs({row.blob for row in rows if row.blob is not None})
        state.engines.reserve.fill()
    return len(rows)
