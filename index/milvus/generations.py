"""The generations of a collection in Milvus."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinlens.index.errors import CollectionNotFound, CorruptCollection, InvalidArgument
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.connection import CALL_S, MilvusConnection
from twinlens.index.milvus.layout import Layout, generation_number, generation_of
from twinlens.index.milvus.tables import TEXT_BYTES, create_table
from twinlens.index.milvus.vector_index import MilvusIndex
from twinlens.index.milvus.vectors import MilvusVectors, expressions, milvus_types

_ABOUT = -1  # the key of the row that says what a generation is; items' keys are not negative


@dataclass(frozen=True, slots=True)
class _About:
    """What never changes of a generation."""

    generation: Generation
    created_s: float
    kind: Kind


class MilvusGenerations:
    """Vectors per space and modality, which items each space has dealt with, and which one is active."""

    def __init__(self, connection: MilvusConnection, client: Any, layout: Layout, kind: Kind, what: str) -> None:
        """Names the parts; see `Layout`.

        Args:
            connection: Where the client comes from.
            client: An open one.
            layout: What the parts are called.
            kind: Over the vectors of generations to come; not `auto`.
            what: What to call the collection in errors.
        """
        self._connection = connection
        self._client = client
        self._layout = layout
        self._kind = kind
        self._what = what
        self._known: dict[int, _About] = {}
        self._indexes: dict[tuple[int, Modality], MilvusIndex] = {}

    def active(self) -> Generation:
        """The active one, as Milvus has it now: another server may have changed it.

        Raises:
            CollectionNotFound: there is no such collection any more.
        """
        with self._connection.clear_errors():
            try:
                named = self._client.describe_alias(self._layout.active, timeout=CALL_S)
            except milvus_error() as error:
                if self._layout.active in self._aliases():
                    raise
                raise CollectionNotFound(f"there is no {self._what}") from error
        number = generation_of(str(named["collection_name"]))
        if number is None:
            raise CorruptCollection(f"{self._what}: Milvus names no active generation")
        return self.find(number)

    def find(self, number: int) -> Generation:
        """A generation by number.

        Raises:
            InvalidArgument: there is none of that number.
        """
        return self._about(number).generation

    def created_s(self, number: int) -> float:
        """When it was begun, in seconds since the epoch."""
        return self._about(number).created_s

    def kind(self, number: int) -> Kind:
        """What Milvus keeps over its vectors; never `auto`."""
        return self._about(number).kind

    def create(self, space_id: str, dimension: int) -> Generation:
        """Makes an empty generation, or finds the one of that space; does not activate it."""
        number = generation_number(space_id)
        if self._layout.done(number) in self.parts():
            return self.find(number)
        work = [
            *(self._vectors(number, modality, dimension, self._kind).create for modality in Modality),
            lambda: self._create_done(number),
        ]
        with ThreadPoolExecutor(len(work)) as pool:  # each waits some seconds for Milvus
            for made in [pool.submit(one) for one in work]:
                made.result()
        about = {"space_id": space_id, "dimension": dimension, "created_s": time.time(), "kind": str(self._kind)}
        self._put_done(number, [(_ABOUT, json.dumps(about))])
        return self.find(number)

    def activate(self, number: int, *, first: bool = False) -> None:
        """Points the collection at a generation; `first`: the collection comes to be by this."""
        with self._connection.clear_errors():
            point = self._client.create_alias if first else self._client.alter_alias
            point(self._layout.done(number), self._layout.active, timeout=CALL_S)

    def drop(self, number: int) -> None:
        """Removes a generation."""
        self._known.pop(number, None)
        for modality in Modality:
            self._indexes.pop((number, modality), None)
        with self._connection.clear_errors():
            for name in reversed(self._layout.of_generation(number)):
                self._client.drop_collection(name, timeout=CALL_S)

    def all(self) -> list[Generation]:
        """By number."""
        numbers = sorted(number for name in self.parts() if (number := generation_of(name)) is not None)
        return [self.find(number) for number in numbers]

    def index(self, generation: Generation, modality: Modality) -> MilvusIndex:
        """What searches the vectors."""
        place = (generation.number, modality)
        found = self._indexes.get(place)
        if found is None:
            made = MilvusIndex(self.vectors(generation, modality), alone=self._connection.address.local)
            found = self._indexes.setdefault(place, made)
        return found

    def vectors(self, generation: Generation, modality: Modality) -> MilvusVectors:
        """Its stored vectors."""
        return self._vectors(generation.number, modality, generation.dimension, self.kind(generation.number))

    def mark(self, number: int, keys: Iterable[int]) -> None:
        """Notes that these keys have been dealt with."""
        self._put_done(number, [(key, "") for key in keys])

    def forget(self, generation: Generation, keys: Collection[int]) -> None:
        """Removes vectors of these keys, and that they have been dealt with."""
        number = generation.number
        for modality in Modality:
            self.index(generation, modality).delete(np.array(list(keys), dtype=np.int64))
        with self._connection.clear_errors():
            for expression in expressions(list(keys)):
                self._client.delete(self._layout.done(number), filter=expression, timeout=CALL_S)

    def marked(self, number: int, keys: Collection[int]) -> set[int]:
        """Which of these keys have been dealt with."""
        found: set[int] = set()
        with self._connection.clear_errors():
            for expression in expressions(list(keys)):
                rows = self._client.query(
                    self._layout.done(number),
                    filter=expression,
                    output_fields=["key"],
                    consistency_level="Strong",
                    timeout=CALL_S,
                )
                found.update(int(row["key"]) for row in rows)
        return found

    def count_marked(self, number: int) -> int:
        """How many keys have been dealt with, those included whose items were replaced a moment ago."""
        with self._connection.clear_errors():
            rows = self._client.query(
                self._layout.done(number),
                filter="key >= 0",
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=CALL_S,
            )
        return int(rows[0]["count(*)"])

    def parts(self) -> list[str]:
        """The names of all parts of the collection that are there."""
        with self._connection.clear_errors():
            return [name for name in self._client.list_collections(timeout=CALL_S) if self._layout.mine(name)]

    def _about(self, number: int) -> _About:
        known = self._known.get(number)
        if known is None:
            if self._layout.done(number) not in self.parts():
                raise InvalidArgument(f"{self._what} has no generation {number}")
            with self._connection.clear_errors():
                rows = self._client.query(
                    self._layout.done(number),
                    filter=f"key in [{_ABOUT}]",
                    output_fields=["note"],
                    consistency_level="Strong",
                    timeout=CALL_S,
                )
            if not rows:
                raise InvalidArgument(f"{self._what} has no generation {number}")
            about = json.loads(rows[0]["note"])
            generation = Generation(number, about["space_id"], about["dimension"])
            known = _About(generation, about["created_s"], Kind(about["kind"]))
            self._known[number] = known
        return known

    def _vectors(self, number: int, modality: Modality, dimension: int, kind: Kind) -> MilvusVectors:
        name = self._layout.vectors(number, modality)
        return MilvusVectors(self._connection, self._client, name, dimension, kind)

    def _create_done(self, number: int) -> None:
        types = milvus_types()
        fields = {"key": (types.INT64, 0), "note": (types.VARCHAR, TEXT_BYTES)}
        create_table(self._connection, self._client, self._layout.done(number), fields)

    def _put_done(self, number: int, rows: list[tuple[int, str]]) -> None:
        if rows:
            with self._connection.clear_errors():
                data = [{"key": key, "note": note, "vector": [0.0, 1.0]} for key, note in rows]
                self._client.upsert(self._layout.done(number), data, timeout=CALL_S)

    def _aliases(self) -> list[str]:
        return list(self._client.list_aliases(timeout=CALL_S)["aliases"])


def milvus_error() -> type[Exception]:
    """What pymilvus raises."""
    import importlib  # noqa: PLC0415

    error: type[Exception] = importlib.import_module("pymilvus").MilvusException
    return error
