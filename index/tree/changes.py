"""The statements on the log of changes: which items have had their vectors changed since a segment was made."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable


def note_changes(connection: sqlite3.Connection, keys: Iterable[int]) -> None:
    """Adds an entry for every item, in the transaction that changes its vectors in whatever generation."""
    connection.execute("INSERT INTO changes (item) SELECT value FROM json_each(?)", (json.dumps(list(keys)),))


def newest_change(connection: sqlite3.Connection) -> int:
    """The number of the last entry there ever was; 0 before the first."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return 0 if row is None else int(row[0])


def changed_since(connection: sqlite3.Connection, through: int) -> list[int]:
    """The items with an entry of a higher number, ascending."""
    rows = connection.execute("SELECT DISTINCT item FROM changes WHERE number > ? ORDER BY item", (through,))
    return [int(item) for (item,) in rows]


def count_changes(connection: sqlite3.Connection) -> int:
    """How many entries the log has."""
    return int(connection.execute("SELECT count(*) FROM changes").fetchone()[0])


def trim_changes(connection: sqlite3.Connection) -> None:
    """Removes the entries that every segment has seen: all of them where there is no segment."""
    connection.execute(
        "DELETE FROM changes WHERE number <= coalesce((SELECT min(through) FROM segments), ?)",
        (newest_change(connection),),
    )
