"""The statements on the segments that count."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from twinlens.index.errors import CorruptCollection
from twinlens.index.item import Modality
from twinlens.index.tree.changes import newest_change, trim_changes

_TOKEN = re.compile(r"[A-Za-z0-9_]+")  # it becomes the name of a folder


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment by the name of its folder, and the number of the last change that it has seen for certain."""

    token: str
    through: int


def find_segments(connection: sqlite3.Connection, generation: int, name: str) -> Mapping[Modality, SegmentRow]:
    """The segments of a generation.

    Raises:
        CorruptCollection: a row is damaged.
    """
    rows = connection.execute("SELECT modality, token, through FROM segments WHERE generation = ?", (generation,))
    found = {}
    for modality, token, through in rows:
        if modality not in set(Modality) or not _TOKEN.fullmatch(str(token)) or not isinstance(through, int):
            raise CorruptCollection(f"{name}: its database names a segment {token!r} that cannot be one")
        found[Modality(modality)] = SegmentRow(token, through)
    return found


def reserve_segment(connection: sqlite3.Connection, generation: int, modality: Modality, token: str) -> None:
    """Has changes logged from now on, for a segment about to be made. Where there is one already, they are.

    No segment is ever called by this token: in a copy of the database that was taken before the segment was done, its
    row must not name it, because it may hold what the copy does not know.
    """
    connection.execute(
        "INSERT OR IGNORE INTO segments (generation, modality, token, through) VALUES (?, ?, ?, ?)",
        (generation, str(modality), token, newest_change(connection)),
    )


def name_segment(connection: sqlite3.Connection, generation: int, modality: Modality, row: SegmentRow) -> None:
    """Lets a segment count in place of the one before, and forgets the changes that no segment needs any more."""
    connection.execute(
        "INSERT OR REPLACE INTO segments (generation, modality, token, through) VALUES (?, ?, ?, ?)",
        (generation, str(modality), row.token, row.through),
    )
    trim_changes(connection)


def forget_segment(connection: sqlite3.Connection, generation: int, modality: Modality, token: str = "") -> None:
    """Lets a segment count no more: the one of that name, or whichever there is."""
    connection.execute(
        "DELETE FROM segments WHERE generation = ?1 AND modality = ?2 AND ?3 IN ('', token)",
        (generation, str(modality), token),
    )
    trim_changes(connection)


def forget_others(connection: sqlite3.Connection, generation: int) -> None:
    """Lets only the segments of this generation count."""
    connection.execute("DELETE FROM segments WHERE generation != ?", (generation,))
    trim_changes(connection)


def all_tokens(connection: sqlite3.Connection) -> set[str]:
    """The names of all segments that count."""
    return {str(token) for (token,) in connection.execute("SELECT token FROM segments")}
