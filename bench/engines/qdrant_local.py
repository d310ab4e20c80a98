"""qdrant-client's local mode: NumPy over a matrix in memory, points in SQLite."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from bench.engines.contender import BATCH, Search
from bench.engines.dataset import Condition, Dataset

_NAME = "photos"


class QdrantLocal:
    """Compares with every vector, whatever kind is asked for."""

    def __init__(self, folder: Path) -> None:
        warnings.filterwarnings("ignore", message=".*not recommended for collections with more than")
        self._client = QdrantClient(path=str(folder / "qdrant"))

    def store(self, data: Dataset) -> bool:
        """Upserts points with their payload."""
        size = data.vectors.shape[1]
        self._client.create_collection(
            _NAME, vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE)
        )
        for start in range(0, len(data.vectors), BATCH):
            rows = list(range(start, min(start + BATCH, len(data.vectors))))
            payloads = [{"draw": int(data.draw[row]), "cluster": int(data.cluster[row])} for row in rows]
            vectors = data.vectors[start : start + BATCH].tolist()
            self._client.upsert(_NAME, points=models.Batch(ids=list(rows), vectors=vectors, payloads=payloads))
        return True

    def build(self, data: Dataset, kind: str) -> None:
        """There is nothing to build."""

    def open(self, threads: int) -> None:
        """It is open, and knows no setting of threads."""

    def searches(self) -> dict[str, Search]:
        """By `QdrantClient.query_points`."""
        return {"collection": lambda queries, top_k: [self._find(query, top_k, None) for query in queries]}

    def search_where(self, query: NDArray[np.float32], top_k: int, condition: Condition) -> Sequence[int] | None:
        """With the condition as a filter of Qdrant."""
        asked = (
            models.FieldCondition(key="draw", range=models.Range(lt=condition.value))
            if condition.field == "draw"
            else models.FieldCondition(key="cluster", match=models.MatchValue(value=condition.value))
        )
        return self._find(query, top_k, models.Filter(must=[asked]))

    def tune(self, data: Dataset, recall: float) -> None:
        """It has no settings."""

    def close(self) -> None:
        """Closes the client."""
        self._client.close()

    def _find(self, query: NDArray[np.float32], top_k: int, asked: models.Filter | None) -> list[int]:
        found = self._client.query_points(_NAME, query=query.tolist(), limit=top_k, query_filter=asked)
        return [int(point.id) for point in found.points]
