"""The statements on the log of changes: which items have had their vectors changed since a segment was made."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable


def note_changes(connection: sqlite3.Connection, keys: Iterable[int], generation: int | None = None) -> None:
    """Adds an entry for every item, in the transaction that changes its vectors, if a segment is there to need it.

    Args:
        connection: Inside that transaction.
        keys: The items.
        generation: The only one in which they change; None: any of them.
    """
    connection.execute(
        "INSERT INTO changes (item) SELECT value FROM json_each(?1)"
        " WHERE EXISTS (SELECT 1 FROM segments WHERE ?2 IS NULL OR generation = ?2)",
        (json.dumps(list(keys)), generation),
    )


def is_logged(connection: sqlite3.Connection, generation: int) -> bool:
    """Whether there is an entry for every change of vectors of this generation: it has a segment, or will have one."""
    found = connection.execute("SELECT 1 FROM segments WHERE generation = ? LIMIT 1", (generation,)).fetchone()
    return found is not None


def newest_change(connection: sqlite3.Connection) -> int:
    """The number of the last entry there ever was; 0 before the first."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return 0 if row is None else int(row[0])


def changed_since(connection: sqlite3.Connection, through: int) -> tuple[int, list[int]]:
    """How many entries have a higher number, and their items, ascending."""
    rows = connection.execute(
        "SELECT item, count(*) FROM changes WHERE number > ? GROUP BY item ORDER BY item", (through,)
    ).fetchall()
    return sum(int(count) for _, count in rows), [int(item) for item, _ in rows]


def trim_changes(connection: sqlite3.Connection) -> None:
    """Removes the entries that every segment has seen: all of them where there is no segment."""
    connection.execute(
        "DELETE FROM changes WHERE number <= coalesce((SELECT min(through) FROM segments), ?)",
        (newest_change(connection),),
    )
