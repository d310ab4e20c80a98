"""A Milvus collection of vectors by integer key: the calls, cut to the sizes that Milvus takes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.connection import CALL_S, MilvusConnection
from twinlens.index.protocol import Keys, Vectors

MAX_K = 16_384  # of one search, by Milvus
_MESSAGE_BYTES = 8 * 2**20  # Milvus refuses messages above 64 MiB
_KEYS = 10_000  # in one expression

_FLOAT_BYTES = 4
_STRONG = "Strong"  # a search sees every write that returned before it began
_ALL = "key >= 0"
_PARAMETERS: dict[Kind, tuple[str, dict[str, int]]] = {
    Kind.FLAT: ("FLAT", {}),
    Kind.HNSW: ("HNSW", {"M": 16, "efConstruction": 200}),
    Kind.IVF_FLAT: ("IVF_FLAT", {"nlist": 1024}),
    Kind.IVF_PQ: ("IVF_SQ8", {"nlist": 1024}),  # Milvus's PQ wants a number of parts that divides the dimension
}


class MilvusVectors:
    """Vectors under `key`, an integer from 0. Every call may raise what `MilvusConnection.clear_errors` does.

    Attributes:
        fresh: How many were written since the last `settle`.
    """

    def __init__(self, connection: MilvusConnection, client: Any, name: str, dimension: int, kind: Kind) -> None:
        """Names a collection that is there or that `create` will make.

        Args:
            connection: Where the client comes from.
            client: An open one.
            name: Of the Milvus collection.
            dimension: Of the vectors.
            kind: Over the vectors; not `auto`.
        """
        self.name = name
        self.dimension = dimension
        self.kind = kind
        self.fresh = 0
        self._connection = connection
        self._client = client

    def create(self, description: str = "") -> None:
        """Makes the collection and readies it for searches."""
        types = milvus_types()
        with self._connection.clear_errors():
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
            schema.add_field("key", types.INT64, is_primary=True)
            schema.add_field("vector", types.FLOAT_VECTOR, dim=self.dimension)
            index, parameters = _PARAMETERS[self.kind]
            make_collection(self._client, self.name, schema, index, parameters)

    def drop(self) -> None:
        """Removes the collection with all that it holds."""
        with self._connection.clear_errors():
            self._client.drop_collection(self.name, timeout=CALL_S)

    def upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        """Adds or replaces; no two keys alike."""
        step = self._rows_a_message()
        with self._connection.clear_errors():
            for start in range(0, len(keys), step):
                rows = [
                    {"key": key, "vector": vector}
                    for key, vector in zip(keys[start : start + step], vectors[start : start + step], strict=True)
                ]
                self._client.upsert(self.name, rows, timeout=CALL_S)
                self.fresh += len(rows)

    def settle(self) -> None:
        """Has Milvus write out what came last, which it then searches faster."""
        with self._connection.clear_errors():
            self._client.flush(self.name, timeout=CALL_S)
        self.fresh = 0

    def delete(self, keys: Sequence[int]) -> None:
        """Removes keys; unknown ones are ignored."""
        with self._connection.clear_errors():
            for among in expressions(keys):
                self._client.delete(self.name, filter=among, timeout=CALL_S)

    def count(self, among: Keys | None = None) -> int:
        """How many of these keys it holds; None: of all."""
        with self._connection.clear_errors():
            return sum(
                int(
                    self._client.query(
                        self.name,
                        filter=expression,
                        output_fields=["count(*)"],
                        consistency_level=_STRONG,
                        timeout=CALL_S,
                    )[0]["count(*)"],
                )
                for expression in ([""] if among is None else expressions(among.tolist()))
            )

    def search(
        self, queries: Vectors, wanted: int, among: Keys | None = None
    ) -> Iterator[list[tuple[NDArray[np.float32], Keys, Vectors]]]:
        """Searches, once for all keys or once for every handful of those that may be found.

        Vectors come in the same answer: they are those that were compared, whatever changes meanwhile.

        Args:
            queries: Unit vectors, shape (q, d).
            wanted: Of one search, from 1 to `MAX_K`.
            among: Which keys may be found; None: all.

        Yields:
            Per query its hits, best first: what Milvus makes of the scores, keys, and stored vectors.
        """
        step = max(self._rows_a_message() // wanted, 1)
        parameters = {"metric_type": "IP", "params": self._effort(wanted)}
        for expression in [""] if among is None else expressions(among.tolist()):
            hits: list[tuple[NDArray[np.float32], Keys, Vectors]] = []
            with self._connection.clear_errors():
                for start in range(0, len(queries), step):
                    answer = self._client.search(
                        self.name,
                        data=list(queries[start : start + step]),
                        filter=expression,
                        limit=wanted,
                        output_fields=["vector"],
                        search_params=parameters,
                        consistency_level=_STRONG,
                        timeout=CALL_S,
                    )
                    hits += [
                        (
                            np.array(of_query.distances, dtype=np.float32),
                            np.array(of_query.ids, dtype=np.int64),
                            self._matrix([hit["entity"]["vector"] for hit in of_query]),
                        )
                        for of_query in answer
                    ]
            yield hits

    def fetch(self, keys: Keys) -> Iterator[tuple[Keys, Vectors]]:
        """Stored vectors of those keys that it holds, some at a time."""
        for expression in expressions(keys.tolist(), self._rows_a_message()):
            with self._connection.clear_errors():
                rows = self._client.query(
                    self.name,
                    filter=expression,
                    output_fields=["key", "vector"],
                    consistency_level=_STRONG,
                    timeout=CALL_S,
                )
            yield self._decode(rows)

    def scan(self, page: int = MAX_K) -> Iterator[tuple[Keys, Vectors]]:
        """All stored vectors by ascending key, at most `page` at a time."""
        pages = pages_by_key(
            self._connection, self._client, self.name, _ALL, ["key", "vector"], page=min(page, self._rows_a_message())
        )
        for rows in pages:
            yield self._decode(rows)

    def _decode(self, rows: Sequence[Any]) -> tuple[Keys, Vectors]:
        keys = np.array([row["key"] for row in rows], dtype=np.int64)
        return keys, self._matrix([row["vector"] for row in rows])

    def _matrix(self, vectors: Sequence[Any]) -> Vectors:
        return np.array(vectors, dtype=np.float32).reshape(len(vectors), self.dimension)

    def _rows_a_message(self) -> int:
        return max(min(_MESSAGE_BYTES // (self.dimension * _FLOAT_BYTES), MAX_K // 4), 1)

    def _effort(self, wanted: int) -> dict[str, int]:
        if self.kind is Kind.HNSW:
            return {"ef": min(max(4 * wanted, 128), 32_768)}
        if self.kind in {Kind.IVF_FLAT, Kind.IVF_PQ}:
            return {"nprobe": min(max(wanted // 2, 64), 1024)}
        return {}


def make_collection(client: Any, name: str, schema: Any, index: str, parameters: dict[str, int]) -> None:
    """Makes a Milvus collection with an index over its field `vector`, and loads it. Errors are pymilvus's."""
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type=index, metric_type="IP", params=parameters)
    client.create_collection(name, schema=schema, consistency_level=_STRONG, timeout=CALL_S)
    client.create_index(name, indexes, sync=False, timeout=CALL_S)  # nothing is in it yet that could be waited for
    client.load_collection(name, timeout=CALL_S)


def pages_by_key(
    connection: MilvusConnection,
    client: Any,
    name: str,
    expression: str,
    fields: Sequence[str],
    *,
    page: int,
    most: int = 0,
    key: str = "key",
    after: str | int | None = None,
) -> Iterator[Sequence[Any]]:
    """Rows that an expression matches in the order of the primary key, a page at a time.

    Args:
        connection: Where the client comes from.
        client: An open one.
        name: Of the Milvus collection.
        expression: Which rows; it must not be empty.
        fields: What to return, the primary key among it.
        page: How many rows at a time, at first.
        most: How many rows at a time at most, if they are short.
        key: The primary key's name.
        after: From the one behind this key.
    """
    level = _STRONG
    while True:
        behind = expression if after is None else f"({expression}) and {key} > {literal(after)}"
        with connection.clear_errors():
            rows = client.query(
                name,
                filter=behind,
                output_fields=list(fields),
                limit=page,
                consistency_level=level,
                timeout=CALL_S,
                # As pymilvus's own iterator asks: the first rows by primary key, not any.
                iterator="True",
                reduce_stop_for_best="True",
            )
        if rows:
            yield rows
            after = rows[-1][key]
        level = "Session"  # the first page waited for what others had written; another wait for each would take long
        if len(rows) < page:
            return
        if most:
            characters = sum(len(value) for row in rows for value in row.values() if isinstance(value, str))
            page = max(min(4 * page, most, page * _MESSAGE_BYTES // (2 * characters + 1)), 1)


def expressions(keys: Sequence[int | str], most: int = _KEYS, *, field: str = "key") -> Iterator[str]:
    """Expressions that together match rows of these keys."""
    for start in range(0, len(keys), min(most, _KEYS)):
        yield f"{field} in [{', '.join(literal(key) for key in keys[start : start + min(most, _KEYS)])}]"


def literal(value: str | int) -> str:
    """A value as Milvus reads it in an expression."""
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def milvus_types() -> Any:
    """Milvus's types of fields."""
    return importlib.import_module("pymilvus").DataType  # heavy, and an extra
