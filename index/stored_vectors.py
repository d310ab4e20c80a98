"""The statements on vectors, and the form in which they are stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.index.checksums import CHECKSUM_BYTES, is_whole, signed
from twinlens.index.errors import CorruptCollection
from twinlens.index.item import Modality
from twinlens.index.protocol import Keys, Vectors

_FLOAT = np.dtype("<f4")


def put_vectors(
    connection: sqlite3.Connection,
    generation: int,
    vectors: Mapping[int, Mapping[Modality, NDArray[np.float32]]],
) -> None:
    """Stores items' vectors of one generation in place of those there; none means there is nothing to embed."""
    keys = [(generation, key) for key in vectors]
    connection.executemany("DELETE FROM embedded WHERE generation = ? AND item = ?", keys)
    connection.executemany("INSERT INTO embedded (generation, item) VALUES (?, ?)", keys)
    connection.executemany(
        "INSERT INTO vectors (generation, item, modality, vector) VALUES (?, ?, ?, ?)",
        [
            (generation, key, str(modality), signed(vector.astype(_FLOAT, copy=False).tobytes()))
            for key, of_item in vectors.items()
            for modality, vector in of_item.items()
        ],
    )


def vector_of(
    connection: sqlite3.Connection,
    generation: int,
    item_id: str,
    modality: Modality,
    dimension: int,
    name: str,
) -> NDArray[np.float32] | None:
    """One stored vector, shape (d,), if there is one."""
    row = connection.execute(
        "SELECT key, vector FROM items JOIN vectors ON vectors.item = items.key"
        " WHERE items.id = ? AND vectors.generation = ? AND vectors.modality = ?",
        (item_id, generation, str(modality)),
    ).fetchone()
    return None if row is None else decode_vectors([row[0]], [row[1]], dimension, name)[0]


def vectors_of(
    connection: sqlite3.Connection, generation: int, ids: Sequence[str], modalities: Sequence[Modality]
) -> list[tuple[str, str, int, bytes]]:
    """Id, modality, key and stored vector of those items that have one."""
    return connection.execute(
        "SELECT items.id, vectors.modality, items.key, vectors.vector FROM items"
        " JOIN vectors ON vectors.item = items.key AND vectors.generation = ?"
        " WHERE items.id IN (SELECT value FROM json_each(?))"
        " AND vectors.modality IN (SELECT value FROM json_each(?))",
        (generation, json.dumps(list(ids)), json.dumps([str(modality) for modality in modalities])),
    ).fetchall()


def page_of_vectors(
    connection: sqlite3.Connection,
    generation: int,
    modality: Modality,
    after: int,
    limit: int,
    column: Literal["id", "metadata"] = "id",
) -> list[tuple[int, str, bytes]]:
    """Key, id (or metadata, as JSON) and stored vector in the order of keys, from the one behind `after`."""
    return connection.execute(
        f"SELECT vectors.item, items.{column}, vectors.vector FROM vectors"  # noqa: S608 - constants
        " JOIN items ON items.key = vectors.item"
        " WHERE vectors.generation = ? AND vectors.item > ? AND vectors.modality = ? ORDER BY vectors.item LIMIT ?",
        (generation, after, str(modality), limit),
    ).fetchall()


def stream_vectors(
    connection: sqlite3.Connection,
    generation: int,
    dimension: int,
    name: str,
    modalities: Sequence[Modality] = tuple(Modality),
    *,
    batch: int = 4096,
) -> Iterator[tuple[Modality, Keys, Vectors]]:
    """Vectors of a generation in one pass, in batches of one modality each; those of other modalities are not read.

    Raises:
        CorruptCollection: a vector has another length than the generation's dimension, or is not of length one.
    """
    cursor = connection.execute(
        "SELECT modality, item, vector FROM vectors WHERE generation = ?"
        " AND modality IN (SELECT value FROM json_each(?))",
        (generation, json.dumps(modalities)),
    )
    while rows := cursor.fetchmany(batch):
        for modality in modalities:
            keys = [key for kind, key, _ in rows if kind == modality]
            if keys:
                blobs = [blob for kind, _, blob in rows if kind == modality]
                vectors = decode_vectors(keys, blobs, dimension, name)
                yield modality, np.array(keys, dtype=np.int64), vectors


def decode_vectors(keys: Sequence[Any], blobs: Sequence[Any], dimension: int, name: str) -> Vectors:
    """Reads stored vectors, shape (n, d), and refuses what cannot have been written by us.

    Each has a checksum behind it, but for those of databases from before these were kept.
    """
    size = dimension * _FLOAT.itemsize
    for key, blob in zip(keys, blobs, strict=True):
        if not isinstance(key, int) or not isinstance(blob, bytes):
            raise CorruptCollection(f"{name}: the vector of item number {key!r} is damaged")
        if len(blob) == size + CHECKSUM_BYTES:
            if not is_whole(blob):
                raise CorruptCollection(f"{name}: the vector of item number {key} is damaged")
        elif len(blob) != size:
            raise CorruptCollection(
                f"{name}: the vector of item number {key} has {len(blob)} bytes, "
                f"but dimension {dimension} needs {size} and {CHECKSUM_BYTES} of checksum",
            )
    data = b"".join([memoryview(blob)[:size] for blob in blobs])
    vectors = np.frombuffer(data, dtype=_FLOAT).reshape(len(blobs), dimension).astype(np.float32, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        good = np.abs(np.einsum("nd,nd->n", vectors, vectors) - 1) < 1e-3
    if not good.all():
        raise CorruptCollection(f"{name}: the vector of item number {keys[int(np.argmin(good))]} is damaged")
    return vectors
