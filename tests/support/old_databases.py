"""Collections as older versions of twinlens left them: their own statements, copied, and rows as they wrote them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_SCHEMA_1 = """
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
"""
_SCHEMA_2 = f"""{_SCHEMA_1}
CREATE TABLE variants (
    generation INTEGER NOT NULL REFERENCES generations (number) ON DELETE CASCADE,
    variant TEXT NOT NULL,
    PRIMARY KEY (generation, variant)
) STRICT, WITHOUT ROWID;
"""
OLD_SCHEMAS: Mapping[int, str] = {1: _SCHEMA_1, 2: _SCHEMA_2}


def picture(item_id: str) -> bytes:
    """The picture of an item."""
    return f"picture of {item_id}".encode()


def write_old_collection(
    root: Path, collection_id: str, schema: int, space_id: str, vectors: Mapping[str, NDArray[np.float32]]
) -> Path:
    """Writes a collection of an old schema into a data folder.

    Args:
        root: The data folder.
        collection_id: What to call it.
        schema: Of `OLD_SCHEMAS`.
        space_id: Of its only generation.
        vectors: Item id to unit vector, shape (d,): both its image and its text vector.

    Returns:
        The database.
    """
    folder = root / "collections" / collection_id
    folder.mkdir(parents=True)
    path = folder / "collection.db"
    dimension = len(next(iter(vectors.values())))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 16384")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {OLD_SCHEMAS[schema]} PRAGMA user_version = {schema}; COMMIT;")
        connection.execute("BEGIN")
        connection.execute(
            "INSERT INTO generations (space_id, dimension, created_s) VALUES (?, ?, ?)", (space_id, dimension, 1.5)
        )
        connection.execute("INSERT INTO collection (one, active_generation, created_s) VALUES (1, 1, 1.5)")
        if schema >= 2:
            connection.execute("INSERT INTO variants VALUES (1, 'image fp32 on cpu')")
        for key, (item_id, vector) in enumerate(vectors.items(), 1):
            digest = hashlib.sha256(picture(item_id)).hexdigest()
            blob = folder / "blobs" / digest[:2] / digest[2:4] / digest
            blob.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(picture(item_id))
            metadata = json.dumps({"number": key})
            row = (key, item_id, 1, f"file:///{item_id}", f"caption {key}", metadata, digest, digest, 2.5, 2.5)
            connection.execute("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("INSERT INTO embedded (item, generation) VALUES (?, 1)", (key,))
            for modality in ("image", "text"):
                connection.execute(
                    "INSERT INTO vectors VALUES (1, ?, ?, ?)", (key, modality, vector.astype("<f4").tobytes())
                )
        connection.execute("COMMIT")
    return path
