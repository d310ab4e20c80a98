"""FAISS as one would use it by hand: an index of the same kind and build parameters, ids only, nothing durable."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.engines.contender import Search
from bench.engines.dataset import TOP_K, Condition, Dataset
from bench.engines.recall import recall_at_k

faiss: Any = importlib.import_module("faiss")  # its types lack much of what it can do

_STEPS = (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
_REFINED = (2, 4, 8, 16, 32)  # candidates per hit wanted that `ivf_pq` scores again
_TRAINED = 100_000
_CLOSE = 0.001  # recalls nearer than this are equal


class BareFaiss:
    """`IndexHNSWFlat`, `IndexIVFFlat`, `IndexIVFPQFastScan` under `IndexRefineFlat`, or `IndexFlatIP`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = 1
        self._index: Any = None
        self._parameters: Any = None

    def store(self, data: Dataset) -> bool:  # noqa: ARG002
        """It keeps nothing by itself."""
        return False

    def build(self, data: Dataset, kind: str) -> None:
        """Trains on a sample, adds, writes the file."""
        vectors = np.array(data.vectors)
        index = _empty_index(kind, len(vectors), vectors.shape[1], self._like())
        if not index.is_trained:
            generator = np.random.default_rng(0)
            sample = generator.choice(len(vectors), min(_TRAINED, len(vectors)), replace=False)
            index.train(vectors[np.sort(sample)])
        index.add(vectors)
        faiss.write_index(index, str(self._folder / "bare.faiss"))

    def open(self, threads: int) -> None:
        """Reads the file."""
        self._threads = threads
        self._index = faiss.read_index(str(self._folder / "bare.faiss"))

    def searches(self) -> dict[str, Search]:
        """Rows by `Index.search`."""
        return {"engine": self._find}

    def search_where(self, query: NDArray[np.float32], top_k: int, condition: Condition) -> Sequence[int] | None:  # noqa: ARG002
        """It knows no filters of its own."""
        return None

    def tune(self, data: Dataset, recall: float) -> None:
        """Tries search parameters and keeps the fastest of those that are as good."""
        fastest = None
        for steps in _settings(self._index):
            for self._parameters in steps:
                start = time.perf_counter()
                found = [self._find(query[None], TOP_K)[0] for query in data.queries]
                taken = time.perf_counter() - start
                if recall_at_k(found, data.nearest) >= recall - _CLOSE:
                    if fastest is None or taken < fastest[0]:
                        fastest = taken, self._parameters
                    break
        if fastest is not None:  # else the last, which is the most thorough
            self._parameters = fastest[1]

    def close(self) -> None:
        """Lets go of the index."""
        self._index = None

    def _find(self, queries: NDArray[np.float32], top_k: int) -> Sequence[Sequence[int]]:
        faiss.omp_set_num_threads(self._threads if len(queries) > 1 else 1)  # per thread that calls
        _, rows = self._index.search(queries, top_k, params=self._parameters)
        found: list[list[int]] = rows.tolist()
        return found

    def _like(self) -> dict[str, int]:
        """The parameters that the collection beside it was built with."""
        path = self._folder / "parameters.json"
        parameters: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return parameters


def _empty_index(kind: str, rows: int, dimension: int, like: dict[str, int]) -> Any:
    lists = like.get("nlist", max(int(4 * rows**0.5), 1))
    description = {
        "flat": "Flat",
        "hnsw": f"HNSW{like.get('m', 24)},Flat",
        "ivf_flat": f"IVF{lists},Flat",
        "ivf_pq": f"IVF{lists},PQ{like.get('pq_m', dimension // 2)}x4fs,RFlat",
    }[kind]
    index = faiss.index_factory(dimension, description, faiss.METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        index.hnsw.efConstruction = like.get("ef_construction", 100)
    return index


def _settings(index: Any) -> list[list[Any]]:
    """Search parameters to try: lists that go from fast to thorough."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexHNSW):
        return [[faiss.SearchParametersHNSW(efSearch=step) for step in _STEPS]]
    if isinstance(index, faiss.IndexIVF):
        return [[faiss.SearchParametersIVF(nprobe=step) for step in _STEPS]]
    if isinstance(index, faiss.IndexRefine):
        below = [faiss.SearchParametersIVF(nprobe=step) for step in _STEPS]
        refine = faiss.IndexRefineSearchParameters
        return [[refine(k_factor=float(factor), base_index_params=of) for of in below] for factor in _REFINED]
    return [[None]]
