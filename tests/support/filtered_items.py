"""Items in a database in memory, and which of them a filter finds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from twinlens.index import schema
from twinlens.index.filters.evaluate import matches
from twinlens.index.filters.parse import parse
from twinlens.index.filters.sql import condition, prepare
from twinlens.index.item import Item
from twinlens.index.prepare import encode_metadata


def stored(item_id: str = "a", metadata: Mapping[str, Any] | None = None, **fields: Any) -> Item:
    """An item; what is not given is empty."""
    given = {"uri": "", "caption": "", "content_hash": "", "has_image": False, "created_s": 0.0, "updated_s": 0.0}
    return Item(id=item_id, metadata=metadata or {}, **{**given, **fields})


def database(items: Sequence[Item]) -> sqlite3.Connection:
    """A database with these items and no vectors."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(connection)
    connection.executemany(
        "INSERT INTO items (id, revision, uri, caption, metadata, content_hash, blob, created_s, updated_s)"
        " VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                item.id,
                item.uri,
                item.caption,
                encode_metadata(item.metadata),
                item.content_hash,
                "x" if item.has_image else None,
                item.created_s,
                item.updated_s,
            )
            for item in items
        ],
    )
    return connection


def found(connection: sqlite3.Connection, text: str, indexed: Sequence[tuple[str, ...]] = ()) -> list[str]:
    """Ids of the items that the database finds, in order."""
    prepare(connection)
    where = condition(parse(text), indexed)
    rows = connection.execute(f"SELECT id FROM items WHERE {where.text} ORDER BY id", where.parameters)  # noqa: S608
    return [row[0] for row in rows]


def expected(items: Sequence[Item], text: str) -> list[str]:
    """Ids of the items that match, decided in Python, in order."""
    return sorted(item.id for item in items if matches(parse(text), item))


def agreed(items: Sequence[Item], text: str) -> list[str]:
    """Ids of the items found, once database and Python agree on them."""
    connection = database(items)
    try:
        both = found(connection, text)
    finally:
        connection.close()
    assert both == expected(items, text), text
    return both


def quoted(text: str) -> str:
    """A text as a filter writes it, asterisks and all."""
    return json.dumps(text, ensure_ascii=False).replace("\\b", "\\u0008").replace("\\f", "\\u000c").replace("*", "\\*")
