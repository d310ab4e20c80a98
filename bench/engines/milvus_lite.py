"""Milvus Lite: Milvus's client over an engine in this process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.engines.contender import BATCH, Search
from bench.engines.dataset import Condition, Dataset

pymilvus: Any = importlib.import_module("pymilvus")  # it ships no types

_NAME = "photos"
# As Milvus's own documentation recommends to start with.
_INDEXES: dict[str, dict[str, int]] = {
    "FLAT": {},
    "HNSW": {"M": 32, "efConstruction": 200},
    "IVF_FLAT": {"nlist": 1024},
}
_SEARCH = {"HNSW": {"ef": 64}, "IVF_FLAT": {"nprobe": 32}}


class MilvusLite:
    """One collection with strong consistency, as a collection of twinlens has it."""

    def __init__(self, folder: Path) -> None:
        self._client = pymilvus.MilvusClient(str(folder / "milvus.db"))
        self._index = folder / "milvus.kind"

    def store(self, data: Dataset) -> bool:
        """Inserts, then flushes."""
        schema = self._client.create_schema(auto_id=False)
        schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=data.vectors.shape[1])
        schema.add_field("draw", pymilvus.DataType.INT64)
        schema.add_field("cluster", pymilvus.DataType.INT64)
        self._client.create_collection(_NAME, schema=schema, consistency_level="Strong")
        for start in range(0, len(data.vectors), BATCH):
            rows = [
                {"id": row, "vector": data.vectors[row], "draw": int(data.draw[row]), "cluster": int(data.cluster[row])}
                for row in range(start, min(start + BATCH, len(data.vectors)))
            ]
            self._client.insert(_NAME, rows)
        self._client.flush(_NAME)
        return True

    def build(self, data: Dataset, kind: str) -> None:  # noqa: ARG002 - it has them
        """Replaces the index by one of another kind."""
        wanted = kind.upper()
        if self._client.list_indexes(_NAME):
            self._client.release_collection(_NAME)
            self._client.drop_index(_NAME, index_name="vector")
        parameters = self._client.prepare_index_params()
        parameters.add_index("vector", index_type=wanted, metric_type="IP", params=_INDEXES[wanted])
        self._client.create_index(_NAME, parameters)
        self._client.load_collection(_NAME)
        self._index.write_text(wanted)

    def open(self, threads: int) -> None:  # noqa: ARG002 - no such setting
        """Loads the collection."""
        self._client.load_collection(_NAME)

    def searches(self) -> dict[str, Search]:
        """By `MilvusClient.search`."""
        return {"collection": lambda queries, top_k: [self._find(query, top_k, "") for query in queries]}

    def search_where(self, query: NDArray[np.float32], top_k: int, condition: Condition) -> Sequence[int] | None:
        """With the condition as an expression of Milvus."""
        return self._find(query, top_k, condition.text.replace("=", "=="))

    def tune(self, data: Dataset, recall: float) -> None:
        """It is measured with the settings above."""

    def close(self) -> None:
        """Closes the client."""
        self._client.close()

    def _find(self, query: NDArray[np.float32], top_k: int, asked: str) -> list[int]:
        params = {"params": _SEARCH.get(self._index.read_text(), {})}
        found = self._client.search(_NAME, data=[query], limit=top_k, filter=asked, search_params=params)
        return [int(hit["id"]) for hit in found[0]]
