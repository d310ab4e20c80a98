"""What is compared: ways to keep vectors and search them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.engines.dataset import Condition, Dataset

BATCH = 256

Search = Callable[[NDArray[np.float32], int], Sequence[Sequence[int]]]
"""Queries, shape (q, d), and how many are wanted → rows of the dataset, best first."""


class Contender(Protocol):
    """One way, over one folder. Every method may be called in a process of its own; `open` comes before `searches`."""

    def store(self, data: Dataset) -> bool:
        """Brings the vectors to the disk in batches of 256, each on disk before the next; False: it keeps none."""

    def build(self, data: Dataset, kind: str) -> None:
        """Makes the structure that is searched, and leaves it on disk."""

    def open(self, threads: int) -> None:
        """Makes ready to search with so many threads."""

    def searches(self) -> dict[str, Search]:
        """Ways to search, by name."""

    def search_where(self, query: NDArray[np.float32], top_k: int, condition: Condition) -> Sequence[int] | None:
        """Rows of the best among those that meet a condition; None: it knows no filters."""

    def tune(self, data: Dataset, recall: float) -> None:
        """Chooses the fastest setting with that recall@10, where it has settings."""

    def close(self) -> None:
        """Ends, leaving on disk what `open` needs."""


_KINDS = ("flat", "hnsw", "ivf_flat", "ivf_pq")
# Name → module and class, the package it needs, and the kinds it knows.
_CONTENDERS = {
    "twinlens": ("bench.engines.twinlens_collection", "TwinlensCollection", "twinlens.index", _KINDS),
    "faiss": ("bench.engines.bare_faiss", "BareFaiss", "faiss", _KINDS),
    "qdrant local": ("bench.engines.qdrant_local", "QdrantLocal", "qdrant_client", _KINDS[:1]),
    "milvus lite": ("bench.engines.milvus_lite", "MilvusLite", "milvus_lite", _KINDS[:3]),
}
CONTENDERS = tuple(_CONTENDERS)


def available(name: str) -> bool:
    """Whether the package that it needs is installed."""
    return importlib.util.find_spec(_CONTENDERS[name][2]) is not None


def kinds_of(name: str) -> tuple[str, ...]:
    """The kinds that a contender can build."""
    return _CONTENDERS[name][3]


def contender(name: str, folder: Path) -> Contender:
    """A contender over a folder, which must exist."""
    module, what, *_ = _CONTENDERS[name]
    made: Contender = getattr(importlib.import_module(module), what)(folder)
    return made
