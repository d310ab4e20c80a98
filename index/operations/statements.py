"""The statements that only operations on whole collections need."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from twinlens.index.item import Modality


def ids_of(connection: sqlite3.Connection, keys: Iterable[int]) -> list[str]:
    """The ids of those keys that exist, by key."""
    rows = connection.execute(
        "SELECT id FROM items WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key", (json.dumps(list(keys)),)
    )
    return [str(item_id) for (item_id,) in rows]


def keys_after(connection: sqlite3.Connection, after: int, limit: int) -> list[int]:
    """Keys of items in order, from the one behind `after`."""
    rows = connection.execute("SELECT key FROM items WHERE key > ? ORDER BY key LIMIT ?", (after, limit))
    return [int(key) for (key,) in rows]


def count_blobs(connection: sqlite3.Connection) -> int:
    """How many different pictures there are."""
    return int(connection.execute("SELECT count(DISTINCT blob) FROM items").fetchone()[0])


def blobs_after(connection: sqlite3.Connection, after: str, limit: int) -> list[str]:
    """Hashes of pictures in order, each once, from the one behind `after`."""
    rows = connection.execute(
        "SELECT DISTINCT blob FROM items WHERE blob IS NOT NULL AND blob > ? ORDER BY blob LIMIT ?", (after, limit)
    )
    return [str(digest) for (digest,) in rows]


def owners_of(connection: sqlite3.Connection, digest: str, limit: int) -> list[str]:
    """Ids of items that have a picture."""
    rows = connection.execute("SELECT id FROM items WHERE blob = ? ORDER BY key LIMIT ?", (digest, limit))
    return [str(item_id) for (item_id,) in rows]


def key_range(connection: sqlite3.Connection, generation: int, modality: Modality) -> tuple[int, int]:
    """The lowest and highest key with a vector; zeros where there is none."""
    first, last = (
        connection.execute(
            f"SELECT item FROM vectors WHERE generation = ? AND modality = ? ORDER BY item {order} LIMIT 1",  # noqa: S608
            (generation, str(modality)),
        ).fetchone()
        for order in ("ASC", "DESC")
    )
    return (int(first[0]), int(last[0])) if first and last else (0, 0)
