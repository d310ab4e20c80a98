"""Vectors out of the database, in the order and form in which an index takes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

from twinlens.index.database import Database
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.stored_vectors import decode_vectors

_PAGE = 2048


def by_key(
    database: Database, generation: Generation, modality: Modality, name: str, *, page: int = _PAGE
) -> Iterator[tuple[Keys, Vectors]]:
    """All vectors of one modality by ascending key.

    Every page is read at a moment of its own, so that the database's log need not be kept for all the time this takes:
    what changes meanwhile may be in it or not, but what was committed before the start and not changed since is.

    Raises:
        CorruptCollection: a vector is damaged.
    """
    after = 0
    while True:
        with database.read() as connection:
            rows = connection.execute(
                "SELECT item, vector FROM vectors WHERE generation = ? AND item > ? AND modality = ?"
                " ORDER BY item LIMIT ?",
                (generation.number, after, str(modality), page),
            ).fetchall()
        if not rows:
            return
        keys, blobs = zip(*rows, strict=True)
        vectors = decode_vectors(keys, blobs, generation.dimension, name)
        yield np.array(keys, dtype=np.int64), vectors
        after = keys[-1]


def of_keys(
    connection: sqlite3.Connection, generation: Generation, modality: Modality, keys: Sequence[int], name: str
) -> tuple[Keys, Vectors]:
    """The vectors of those keys that have one, by ascending key.

    Raises:
        CorruptCollection: a vector is damaged.
    """
    rows = connection.execute(
        "SELECT item, vector FROM vectors WHERE generation = ? AND modality = ?"
        " AND item IN (SELECT value FROM json_each(?)) ORDER BY item",
        (generation.number, str(modality), json.dumps(keys)),
    ).fetchall()
    vectors = decode_vectors([key for key, _ in rows], [blob for _, blob in rows], generation.dimension, name)
    return np.array([key for key, _ in rows], dtype=np.int64), vectors


def count_vectors(database: Database, generation: Generation, modality: Modality) -> int:
    """How many vectors there are; reads through all of the generation."""
    with database.read() as connection:
        row = connection.execute(
            "SELECT count(*) FROM vectors WHERE generation = ? AND modality = ?", (generation.number, str(modality))
        ).fetchone()
    return int(row[0])
