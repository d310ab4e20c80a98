"""Indexes of the database on paths into metadata, so that narrow filters need not look at every item."""

from __future__ import annotations

import hashlib
import re
import sqlite3

from twinlens.index.errors import CorruptCollection, InvalidArgument
from twinlens.index.filters import json_paths
from twinlens.index.filters.ast import MetadataPath
from twinlens.index.filters.errors import InvalidFilter
from twinlens.index.filters.fields import METADATA, OWN
from twinlens.index.filters.parse import parse_path

_BARE = re.compile(r"(?!(?:AND|OR|NOT)$)[^\W\d]\w*")
MAX_INDEXES = 16  # each costs every write


def add(connection: sqlite3.Connection, path: str) -> str:
    """Makes an index, unless there is one, in the transaction of the connection.

    Returns:
        The path as it will be listed.

    Raises:
        InvalidArgument: it is no path into metadata, or there are too many.
    """
    segments = _segments(path)
    known = listed(connection)
    if segments in known:
        return known[segments]
    if len(known) >= MAX_INDEXES:
        raise InvalidArgument(f"a collection has at most {MAX_INDEXES} metadata indexes: remove one first")
    written = _written(segments)
    connection.execute("INSERT INTO metadata_indexes (path) VALUES (?)", (written,))
    connection.execute(f"CREATE INDEX {_name(written)} ON items ({json_paths.literal(segments)})")
    return written


def remove(connection: sqlite3.Connection, path: str) -> None:
    """Removes an index in the transaction of the connection.

    Raises:
        InvalidArgument: there is none on that path.
    """
    known = listed(connection)
    written = known.get(_segments(path))
    if written is None:
        there = ", ".join(known.values()) or "none"
        raise InvalidArgument(f"there is no metadata index on {path!r}; there are: {there}")
    connection.execute("DELETE FROM metadata_indexes WHERE path = ?", (written,))
    connection.execute(f"DROP INDEX IF EXISTS {_name(written)}")


def listed(connection: sqlite3.Connection) -> dict[tuple[str, ...], str]:
    """Paths that have an index, as the keys that lead there, and as they are written.

    Raises:
        CorruptCollection: one of them cannot have been written by us.
    """
    rows = connection.execute("SELECT path FROM metadata_indexes ORDER BY path")
    try:
        return {_segments(path): path for (path,) in rows}
    except InvalidArgument as error:
        raise CorruptCollection(f"the list of metadata indexes is damaged: {error}; restore it from a copy") from error


def _segments(path: str) -> tuple[str, ...]:
    try:
        field = parse_path(path)
    except InvalidFilter as error:
        raise InvalidArgument(f"metadata path {path!r}: {str(error).partition(': ')[2]}") from error
    if not isinstance(field, MetadataPath) or not field.segments:
        raise InvalidArgument(f"{path!r} is no path into metadata: name a key, as in metadata.year")
    if not all(map(json_paths.is_plain, field.segments)):
        raise InvalidArgument(
            f"metadata path {path!r}: keys with quotes, backslashes or control characters have no index"
        )
    return field.segments


def _written(segments: tuple[str, ...]) -> str:
    path = ".".join(each if _BARE.fullmatch(each) else f'"{each}"' for each in segments)
    return f"{METADATA}.{path}" if segments[0] in {*OWN, METADATA} else path


def _name(written: str) -> str:
    return f"items_by_metadata_{hashlib.sha256(written.encode()).hexdigest()[:16]}"
