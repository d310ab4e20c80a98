"""A copy of a collection's database at one moment, taken while it is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from twinlens.index.database import TRUSTED_SCHEMA, translated
from twinlens.index.errors import CorruptCollection
from twinlens.index.state import CollectionState

_PAGES = 256  # copied between two looks at whether the collection is to be closed
_STEPS_BETWEEN_LOOKS = 100_000  # of SQLite's virtual machine
_PREFIXES = 256


def take_snapshot(state: CollectionState, target: Path) -> None:
    """Copies the database, as it is now, to a new file that needs no log beside it.

    Raises:
        CorruptCollection: the database is damaged.
        CollectionNotFound: the collection was closed meanwhile.
        CollectionError: the disk is full.
    """

    def look_up(*_: int) -> None:
        state.check_not_closing()

    with (
        state.use(),
        translated(state.name),
        closing(sqlite3.connect(target, isolation_level=None, check_same_thread=False)) as copy,
        state.database.read() as source,
    ):
        source.execute("SELECT number FROM generations LIMIT 1").fetchone()  # from here on it is this moment
        source.backup(copy, pages=_PAGES, progress=look_up)
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.set_progress_handler(state.closing.is_set, _STEPS_BETWEEN_LOOKS)
        try:
            found = " ".join(str(copy.execute("PRAGMA quick_check(1)").fetchone()[0]).split())
        except sqlite3.OperationalError:
            look_up()
            raise
        if found != "ok":
            raise CorruptCollection(f"{state.name}: its database is damaged ({found}); restore an earlier backup")


@contextmanager
def open_snapshot(path: Path, name: str) -> Iterator[sqlite3.Connection]:
    """Opens a copy for reading; `name` says in errors what it is of."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    with (
        translated(name),
        closing(sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)) as connection,
    ):
        connection.execute(f"PRAGMA trusted_schema = {TRUSTED_SCHEMA}")
        yield connection


def picture_names(connection: sqlite3.Connection) -> Iterator[list[str]]:
    """Goes through the digests of all pictures, each once and in order, a 256th at a time."""
    for prefix in range(_PREFIXES):
        first, beyond = f"{prefix:02x}", f"{prefix:02x}g"  # "g" comes behind every hexadecimal digit
        rows = connection.execute(
            "SELECT DISTINCT blob FROM items WHERE blob IS NOT NULL AND blob >= ? AND blob < ? ORDER BY blob",
            (first, beyond),
        )
        yield [str(digest) for (digest,) in rows]
