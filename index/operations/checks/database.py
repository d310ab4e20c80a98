"""Checking the database file and its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from twinlens.index import store
from twinlens.index.errors import CollectionError, CollectionNotFound, CorruptCollection
from twinlens.index.ids import check_item_id
from twinlens.index.interruption import interruptible
from twinlens.index.operations import statements
from twinlens.index.operations.checks.few import Few
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.state import CollectionState

_PAGE = 1000
_MOST_COMPLAINTS = 20


def check_database(state: CollectionState) -> Iterator[Progress | Finding]:
    """Has SQLite check the file and the references between rows."""
    yield Progress("database", 0, 1)
    try:
        with state.use(), state.database.read() as connection:
            complaints = _complaints(connection, state)
    except CorruptCollection as error:
        complaints = [str(error)]
    for complaint in complaints:
        yield Finding("database", "", f"{complaint}; restore a backup")
    yield Progress("database", 1, 1)


def _complaints(connection: sqlite3.Connection, state: CollectionState) -> list[str]:
    with interruptible(connection, state.closing, state.name):
        rows = connection.execute(f"PRAGMA integrity_check({_MOST_COMPLAINTS})").fetchall()
        complaints = [" ".join(str(text).split()) for (text,) in rows if text != "ok"]
        broken = connection.execute("PRAGMA foreign_key_check").fetchmany(_MOST_COMPLAINTS)
        complaints += [
            f"a row of {table} names a row of {parent} that does not exist" for table, _, parent, _ in broken
        ]
        missing = connection.execute(
            "SELECT count(*) FROM items, collection WHERE NOT EXISTS"
            " (SELECT 1 FROM embedded WHERE item = items.key AND generation = active_generation)"
        ).fetchone()[0]
        if missing:
            complaints.append(f"{missing} items are unknown to the active generation")
    return complaints


def check_items(state: CollectionState) -> Iterator[Progress | Finding]:
    """Reads the row of every item."""
    with state.use(), state.database.read() as connection:
        total = store.count_items(connection)
    few, after, done = Few("database"), -1, 0
    yield Progress("items", 0, total)
    while True:
        with state.use(), state.database.read() as connection:
            keys = statements.keys_after(connection, after, _PAGE)
        if not keys:
            break
        for item_id, message in _damaged(state, keys):
            yield from few.found(item_id, f"{message}; store the item again or restore a backup")
        after = keys[-1]
        done += len(keys)
        yield Progress("items", done, max(done, total))
    yield from few.rest()


def _damaged(state: CollectionState, keys: list[int]) -> list[tuple[str, str]]:
    """Ids and what is wrong with the rows of these keys: one by one where not all can be read together."""
    try:
        with state.use(), state.database.read() as connection:
            for item in store.items_by_key(connection, keys, state.name).values():
                check_item_id(item.id)
    except CollectionNotFound:
        raise
    except CollectionError as error:
        if len(keys) == 1:
            with state.use(), state.database.read() as connection:
                return [(item_id, str(error)) for item_id in statements.ids_of(connection, keys)]
        middle = len(keys) // 2
        return _damaged(state, keys[:middle]) + _damaged(state, keys[middle:])
    return []
