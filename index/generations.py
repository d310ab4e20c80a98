"""The statements on generations, and the active one in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CorruptCollection, InvalidArgument
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import VectorIndex
from twinlens.index.stats import GenerationState
from twinlens.index.store import Row
from twinlens.index.tree.tree_index import TreeIndex


@dataclass(frozen=True, slots=True)
class Generation:
    """Vectors of one space."""

    number: int
    space_id: str
    dimension: int


@dataclass(frozen=True, slots=True)
class LoadedGeneration:
    """A generation with its engines, one per modality. Searches hold on to the one they began with.

    Attributes:
        generation: Whose vectors they hold.
        engines: What searches them.
        trees: The same as far as they merge in the background.
    """

    generation: Generation
    engines: Mapping[Modality, VectorIndex]
    trees: Mapping[Modality, TreeIndex] = field(default_factory=dict)

    def replace(self, vectors: Mapping[int, Mapping[Modality, NDArray[np.float32]]]) -> None:
        """Takes over what was committed for these keys; modalities not given vanish."""
        for modality, engine in self.engines.items():
            given = {key: of_item[modality] for key, of_item in vectors.items() if modality in of_item}
            gone = [key for key in vectors if key not in given]
            if given:
                engine.upsert(np.array(list(given), dtype=np.int64), np.stack(list(given.values())))
            if gone:
                engine.delete(np.array(gone, dtype=np.int64))


@dataclass(slots=True)
class Fill:
    """Where the filling of a generation stands: it need not start from the first key every time.

    Attributes:
        first: No item below this key was missing when last asked.
        handed_out: Item id to the row whose content is being embedded; one replaced since then stays missing.
    """

    first: int = 0
    handed_out: dict[str, Row] = field(default_factory=dict)


def find_active(connection: sqlite3.Connection, name: str) -> tuple[Generation, float]:
    """The active generation, and when the collection was created (seconds since the epoch)."""
    row = connection.execute(
        "SELECT number, space_id, dimension, collection.created_s FROM collection"
        " JOIN generations ON number = active_generation",
    ).fetchone()
    if row is None or not isinstance(row[1], str) or not isinstance(row[2], int):
        raise CorruptCollection(f"{name}: its database names no active generation")
    return Generation(*row[:3]), float(row[3])


def kind_of(connection: sqlite3.Connection, name: str) -> Kind:
    """Which structure the collection's merged vectors are to get."""
    row = connection.execute("SELECT kind FROM collection").fetchone()
    try:
        return Kind(row[0])
    except (TypeError, ValueError) as error:
        raise CorruptCollection(f"{name}: its database names an index kind that does not exist") from error


def set_kind(connection: sqlite3.Connection, kind: Kind) -> None:
    """Gives the collection another kind."""
    connection.execute("UPDATE collection SET kind = ?", (str(kind),))


def find_generation(connection: sqlite3.Connection, number: int, name: str) -> Generation:
    """A generation by number.

    Raises:
        InvalidArgument: there is none of that number.
    """
    row = connection.execute(
        "SELECT number, space_id, dimension FROM generations WHERE number = ?",
        (number,),
    ).fetchone()
    if row is None:
        raise InvalidArgument(f"{name} has no generation {number}")
    return Generation(*row)


def newest_of_space(connection: sqlite3.Connection, space_id: str) -> Generation | None:
    """The newest generation of a space, if there is one."""
    row = connection.execute(
        "SELECT number, space_id, dimension FROM generations WHERE space_id = ? ORDER BY number DESC LIMIT 1",
        (space_id,),
    ).fetchone()
    return None if row is None else Generation(*row)


def all_generations(connection: sqlite3.Connection) -> list[GenerationState]:
    """All generations by number, and how many items each has dealt with."""
    embedded = dict(connection.execute("SELECT generation, count(*) FROM embedded GROUP BY generation"))
    rows = connection.execute(
        "SELECT number, space_id, dimension, number = active_generation, generations.created_s"
        " FROM generations, collection ORDER BY number",
    )
    return [
        GenerationState(number, space_id, dimension, bool(active), embedded.get(number, 0), created_s)
        for number, space_id, dimension, active, created_s in rows
    ]


def insert_generation(connection: sqlite3.Connection, space_id: str, dimension: int, now_s: float) -> int:
    """Adds an empty generation and returns its number."""
    cursor = connection.execute(
        "INSERT INTO generations (space_id, dimension, created_s) VALUES (?, ?, ?)",
        (space_id, dimension, now_s),
    )
    return int(cursor.lastrowid or 0)


def note_variant(connection: sqlite3.Connection, number: int, variant: str) -> None:
    """Keeps what computed vectors of a generation; an empty name keeps nothing."""
    if variant:
        connection.execute("INSERT OR IGNORE INTO variants (generation, variant) VALUES (?, ?)", (number, variant))


def variants_of(connection: sqlite3.Connection, number: int) -> tuple[str, ...]:
    """What computed the vectors of a generation, in alphabetical order."""
    rows = connection.execute("SELECT variant FROM variants WHERE generation = ? ORDER BY variant", (number,))
    return tuple(str(row[0]) for row in rows)


def set_active(connection: sqlite3.Connection, number: int) -> None:
    """Points the collection at a generation."""
    connection.execute("UPDATE collection SET active_generation = ?", (number,))


def empty_generation(connection: sqlite3.Connection, number: int, keys: range) -> None:
    """Makes items of a range of keys missing in a generation, and removes their vectors there."""
    bounds = (number, keys.start, keys.stop)
    connection.execute("DELETE FROM vectors WHERE generation = ? AND item >= ? AND item < ?", bounds)
    connection.execute("DELETE FROM embedded WHERE generation = ? AND item >= ? AND item < ?", bounds)


def delete_generation(connection: sqlite3.Connection, number: int) -> None:
    """Removes a generation and its vectors."""
    connection.execute("DELETE FROM vectors WHERE generation = ?", (number,))
    connection.execute("DELETE FROM embedded WHERE generation = ?", (number,))
    connection.execute("DELETE FROM generations WHERE number = ?", (number,))


def count_missing(connection: sqlite3.Connection, number: int, keys: Sequence[int] | None = None) -> int:
    """How many items, or how many of those with these keys, a generation has not dealt with."""
    among = "" if keys is None else "key IN (SELECT value FROM json_each(?)) AND"
    row = connection.execute(
        f"SELECT count(*) FROM items WHERE {among}"  # noqa: S608 - constants
        " NOT EXISTS (SELECT 1 FROM embedded WHERE item = items.key AND generation = ?)",
        (number,) if keys is None else (json.dumps(keys), number),
    ).fetchone()
    return int(row[0])
