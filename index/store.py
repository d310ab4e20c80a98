"""The statements on items. Every value is a parameter; lists of ids travel as one JSON parameter."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinlens.index.checksums import of_row
from twinlens.index.errors import CorruptCollection, InvalidArgument
from twinlens.index.filters.conditions import ALL, Sql
from twinlens.index.item import Item
from twinlens.index.prepare import PreparedItem
from twinlens.index.protocol import Keys
from twinlens.index.tree.changes import note_changes

_ROW = "key, revision, blob, created_s"
_COLUMNS = "id, uri, caption, metadata, content_hash, blob, created_s, updated_s, checksum"
_FLOAT = np.dtype("<f4")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Row:
    """A stored item: its key, never used again, how often it was replaced, and what the next version of it needs."""

    key: int
    revision: int
    blob: str | None
    created_s: float


def find_rows(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, Row]:
    """The rows of those ids that exist."""
    found = connection.execute(
        f"SELECT id, {_ROW} FROM items WHERE id IN (SELECT value FROM json_each(?))",  # noqa: S608 - constants
        (json.dumps(list(ids)),),
    )
    return {item_id: Row(*row) for item_id, *row in found}


def put_item(connection: sqlite3.Connection, item: PreparedItem, old: Row | None, now_s: float) -> int:
    """Inserts an item or replaces all of it, vectors of every generation included; returns its key."""
    kept = old is not None and isinstance(old.created_s, float)  # a damaged row is mended by storing the item again
    created_s = old.created_s if old is not None and kept else now_s
    texts = (item.id, item.uri, item.caption, item.metadata, item.content_hash, item.blob or "")
    checksum = of_row(texts, created_s, now_s)
    values = (item.uri, item.caption, item.metadata, item.content_hash, item.blob, checksum, now_s, created_s)
    if old is None:
        cursor = connection.execute(
            "INSERT INTO items"
            " (uri, caption, metadata, content_hash, blob, checksum, updated_s, created_s, id, revision)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
            (*values, item.id),
        )
        return int(cursor.lastrowid or 0)
    connection.execute(
        "UPDATE items SET uri = ?, caption = ?, metadata = ?, content_hash = ?, blob = ?, checksum = ?, updated_s = ?,"
        " created_s = ?, revision = revision + 1 WHERE key = ?",
        (*values, old.key),
    )
    connection.execute("DELETE FROM embedded WHERE item = ?", (old.key,))
    return old.key


def delete_items(connection: sqlite3.Connection, keys: Sequence[int]) -> None:
    """Removes items and their vectors."""
    note_changes(connection, keys)
    connection.executemany("DELETE FROM items WHERE key = ?", [(key,) for key in keys])


def unnamed_blobs(connection: sqlite3.Connection, digests: Iterable[str]) -> list[str]:
    """Those hashes that no row names."""
    return [
        digest
        for digest in digests
        if connection.execute("SELECT 1 FROM items WHERE blob = ? LIMIT 1", (digest,)).fetchone() is None
    ]


def all_blobs(connection: sqlite3.Connection) -> set[str]:
    """Every hash that a row names."""
    return {digest for (digest,) in connection.execute("SELECT blob FROM items WHERE blob IS NOT NULL")}


def count_items(connection: sqlite3.Connection, where: Sql = ALL) -> int:
    """How many items there are that meet a condition."""
    counted = connection.execute(f"SELECT count(*) FROM items WHERE {where.text}", where.parameters)  # noqa: S608
    return int(counted.fetchone()[0])


def last_key(connection: sqlite3.Connection) -> int:
    """The highest key in use; 0 where there is no item."""
    return int(connection.execute("SELECT coalesce(max(key), 0) FROM items").fetchone()[0])


def rows_where(connection: sqlite3.Connection, where: Sql, keys: Keys) -> list[Row]:
    """Rows of those keys that exist and meet a condition."""
    rows = connection.execute(
        f"SELECT {_ROW} FROM items"  # noqa: S608 - what callers wrote is in the parameters
        f" WHERE key IN (SELECT value FROM json_each(?)) AND {where.text}",
        (json.dumps(keys.tolist()), *where.parameters),
    )
    return [Row(*row) for row in rows]


def items_by_key(
    connection: sqlite3.Connection,
    keys: Iterable[int],
    name: str,
    max_characters: int | None = None,
    where: Sql = ALL,
) -> dict[int, Item]:
    """The items of those keys that exist and meet a condition, in one query.

    Raises:
        InvalidArgument: they are longer together than `max_characters`; the rest is not read.
    """
    rows = connection.execute(
        f"SELECT key, {_COLUMNS} FROM items"  # noqa: S608 - what callers wrote is in the parameters
        f" WHERE key IN (SELECT value FROM json_each(?)) AND {where.text}",
        (json.dumps(list(keys)), *where.parameters),
    )
    items: dict[int, Item] = {}
    characters = 0
    for row in rows:
        items[row[0]] = _item(row[1:], name)
        if max_characters is None:
            continue
        characters += len(row[1]) + len(row[2]) + len(row[3]) + len(row[4])  # id, uri, caption, metadata
        if characters > max_characters:
            raise InvalidArgument(f"the items found have more than {max_characters} characters; ask for fewer")
    return items


def item_by_id(connection: sqlite3.Connection, item_id: str, name: str) -> Item | None:
    """One item, if it exists."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM items WHERE id = ?", (item_id,)).fetchone()  # noqa: S608
    return None if row is None else _item(row, name)


def page_of_items(connection: sqlite3.Connection, after: str, limit: int, name: str, where: Sql = ALL) -> list[Item]:
    """Items that meet a condition in the order of their ids, from the one behind `after`."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM items WHERE id > ? AND {where.text} ORDER BY id LIMIT ?",  # noqa: S608 - see above
        (after, *where.parameters, limit),
    )
    return [_item(row, name) for row in rows]


def missing_items(
    connection: sqlite3.Connection,
    generation: int,
    keys: range,
    limit: int,
    name: str,
) -> list[tuple[Row, Item]]:
    """Items that a generation has not dealt with, by key, within a range of keys."""
    rows = connection.execute(
        f"SELECT {_ROW}, {_COLUMNS} FROM items"  # noqa: S608 - constants
        " WHERE key >= ? AND key < ?"
        " AND NOT EXISTS (SELECT 1 FROM embedded WHERE item = items.key AND generation = ?) ORDER BY key LIMIT ?",
        (keys.start, keys.stop, generation, limit),
    )
    return [(Row(*row[:4]), _item(row[4:], name)) for row in rows]


def _item(row: tuple[Any, ...], name: str) -> Item:
    item_id, uri, caption, metadata, content_hash, blob, created_s, updated_s, checksum = row
    texts = (item_id, uri, caption, metadata, content_hash, "" if blob is None else blob)
    # Ten of these are made for a search: its speed is why this is not a loop, and what is not said by keyword below.
    texts_fit = (
        type(item_id) is type(uri) is type(caption) is type(metadata) is type(content_hash) is type(texts[5]) is str
    )
    if not (texts_fit and type(created_s) is type(updated_s) is float):
        raise CorruptCollection(f"{name}: the row of item {item_id!r} is damaged")
    try:
        decoded = _metadata(metadata)
    except ValueError as error:
        raise CorruptCollection(f"{name}: the metadata of item {item_id!r} is damaged") from error
    if checksum is not None and checksum != of_row(texts, created_s, updated_s):  # none in rows from before it was kept
        raise CorruptCollection(f"{name}: the row of item {item_id!r} is damaged")
    return Item(item_id, uri, caption, decoded, content_hash, blob is not None, created_s, updated_s)


def values_under(texts: Sequence[str], key: str, name: str) -> list[Any]:
    """What items' metadata, as stored, has under a key; None where nothing."""
    try:
        return [_metadata(text).get(key) for text in texts]
    except ValueError as error:
        raise CorruptCollection(f"{name}: the metadata of an item is damaged") from error


def _metadata(text: str) -> dict[str, Any]:
    """Reads a mapping written without spaces around it.

    Raises:
        ValueError: it is none.
    """
    try:
        decoded, end = _DECODER.raw_decode(text)
    except (TypeError, RecursionError) as error:
        raise ValueError("not JSON") from error
    if end != len(text) or not isinstance(decoded, dict):
        raise ValueError("not one mapping")
    return decoded
