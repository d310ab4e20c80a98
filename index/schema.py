"""The tables of a collection's database, and how older ones become newer.

Feedback and jobs will join as tables of later schema numbers; nothing here has to change for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from twinlens.index.errors import CorruptCollection

SCHEMA_VERSION = 3

# Vectors of 512 to 1,000 floats fit several to a page of this size; in 4 KiB pages each would spill over.
PAGE_BYTES = 16384

# `variants` names what computed vectors of a generation: precisions and providers of the towers. Nothing is known of
# vectors from before it was kept.
#
# An item is in `embedded` once a generation has dealt with it, also when there was nothing to embed. Replacing an item
# removes it there, and with it its vectors in every generation, which makes it missing in those being filled.
_VARIANTS = """
CREATE TABLE variants (
    generation INTEGER NOT NULL REFERENCES generations (number) ON DELETE CASCADE,
    variant TEXT NOT NULL,
    PRIMARY KEY (generation, variant)
) STRICT, WITHOUT ROWID;
"""
# An item's checksum is over its texts and times; rows from before have none. Vectors have theirs behind them in the
# same blob.
#
# `changes` is a log: an entry for every change of an item's vectors, in whatever generation. `segments` names the
# merged files that count, and through which change they hold what there was. Entries that all segments hold are
# removed; a file that no row names, or a row whose file is gone, counts for nothing, and the truth is read instead.
_INDEXES = """
ALTER TABLE collection ADD COLUMN kind TEXT NOT NULL DEFAULT 'auto';
ALTER TABLE items ADD COLUMN checksum INTEGER;
CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, item INTEGER NOT NULL) STRICT;
CREATE TABLE segments (
    generation INTEGER NOT NULL REFERENCES generations (number) ON DELETE CASCADE,
    modality TEXT NOT NULL CHECK (modality IN ('image', 'text')),
    token TEXT NOT NULL UNIQUE,
    through INTEGER NOT NULL,
    PRIMARY KEY (generation, modality)
) STRICT, WITHOUT ROWID;
CREATE TABLE metadata_indexes (path TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""
_SCHEMA = f"""
CREATE TABLE generations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    space_id TEXT NOT NULL,
    dimension INTEGER NOT NULL CHECK (dimension > 0),
    created_s REAL NOT NULL
) STRICT;
CREATE TABLE collection (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    active_generation INTEGER NOT NULL REFERENCES generations (number),
    created_s REAL NOT NULL
) STRICT;
CREATE TABLE items (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    revision INTEGER NOT NULL,
    uri TEXT NOT NULL,
    caption TEXT NOT NULL,
    metadata TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    blob TEXT,
    created_s REAL NOT NULL,
    updated_s REAL NOT NULL
) STRICT;
CREATE INDEX items_by_blob ON items (blob) WHERE blob IS NOT NULL;
CREATE TABLE embedded (
    item INTEGER NOT NULL REFERENCES items (key) ON DELETE CASCADE,
    generation INTEGER NOT NULL REFERENCES generations (number),
    PRIMARY KEY (item, generation)
) STRICT, WITHOUT ROWID;
CREATE TABLE vectors (
    generation INTEGER NOT NULL,
    item INTEGER NOT NULL,
    modality TEXT NOT NULL CHECK (modality IN ('image', 'text')),
    vector BLOB NOT NULL,
    PRIMARY KEY (generation, item, modality),
    FOREIGN KEY (item, generation) REFERENCES embedded (item, generation) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
{_VARIANTS}{_INDEXES}"""

# From a schema number to the statements that lead to the next one.
MIGRATIONS: Mapping[int, str] = {1: _VARIANTS, 2: _INDEXES}


def create(connection: sqlite3.Connection) -> None:
    """Makes the tables in an empty database."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")


def migrate(connection: sqlite3.Connection, name: str, migrations: Mapping[int, str] = MIGRATIONS) -> None:
    """Brings a database to the newest schema, one transaction a step.

    Args:
        connection: In autocommit mode.
        name: What to call the database in an error.
        migrations: The steps known.

    Raises:
        CorruptCollection: it is not one of ours, or of a newer schema than this version understands.
    """
    newest = max(migrations, default=SCHEMA_VERSION - 1) + 1
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > newest:
        raise CorruptCollection(
            f"{name} has schema {found}, but this version of twinlens reads up to {newest}: use a newer version",
        )
    if found < 1:
        raise CorruptCollection(f"{name} has no schema number: its database is empty or not one of twinlens")
    for number in range(found, newest):
        try:
            connection.executescript(f"BEGIN; {migrations[number]}; PRAGMA user_version = {number + 1}; COMMIT;")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
