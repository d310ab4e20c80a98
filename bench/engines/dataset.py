"""Clustered synthetic vectors with their exact neighbours, kept in files so that every process reads the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOP_K = 10
_ROWS_PER_CENTRE = 1000
_SPREAD = 0.7
_CHUNK = 20_000


@dataclass(frozen=True, slots=True)
class Condition:
    """What a filter asks of an item's number: `draw < value`, independent of the vector, or `cluster = value`."""

    field: str
    value: int

    @property
    def text(self) -> str:
        """As it is written in a filter."""
        return f"{self.field} {'<' if self.field == 'draw' else '='} {self.value}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Vectors are mapped, not read.

    Attributes:
        vectors: Unit vectors, float32, shape (n, d).
        queries: From the same distribution and not among the vectors, shape (q, d).
        nearest: Rows of the exact best for each query, shape (q, TOP_K).
        draw: A random permutation of 0 to n - 1.
        cluster: The centre that each vector was drawn around.
    """

    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    nearest: NDArray[np.int64]
    draw: NDArray[np.int64]
    cluster: NDArray[np.int64]

    def rows_where(self, condition: Condition) -> NDArray[np.int64]:
        """The rows that a filter lets through, ascending."""
        if condition.field == "draw":
            return np.flatnonzero(np.asarray(self.draw) < condition.value)
        return np.flatnonzero(np.asarray(self.cluster) == condition.value)


def make_dataset(folder: Path, rows: int, dimension: int, queries: int, seed: int = 0) -> None:
    """Writes a dataset.

    One centre per thousand rows. Variances fall like 1/i along random orthogonal axes, as principal components of
    image embeddings roughly do: about 28 effective dimensions of 512. Spread evenly over all dimensions, the neighbours
    of a point would be equally far, and which are the first ten would be chance.

    Args:
        folder: Must exist.
        rows: How many vectors.
        dimension: Their length.
        queries: How many queries.
        seed: Of everything.
    """
    generator = np.random.default_rng(seed)
    scale = np.arange(1, dimension + 1, dtype=np.float32) ** -0.5
    axes = np.linalg.qr(generator.standard_normal((dimension, dimension)))[0].astype(np.float32) * scale[:, None]
    centres = generator.standard_normal((max(rows // _ROWS_PER_CENTRE, 1), dimension), dtype=np.float32)
    cluster = generator.integers(len(centres), size=rows + queries)
    vectors = np.lib.format.open_memmap(
        folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(rows + queries, dimension)
    )
    for start in range(0, rows + queries, _CHUNK):
        of_chunk = cluster[start : start + _CHUNK]
        noise = generator.standard_normal((len(of_chunk), dimension), dtype=np.float32)
        points = (centres[of_chunk] + _SPREAD * noise) @ axes
        vectors[start : start + _CHUNK] = points / np.linalg.norm(points, axis=1, keepdims=True)
    vectors.flush()
    np.save(folder / "cluster.npy", cluster)
    np.save(folder / "draw.npy", generator.permutation(rows))
    np.save(folder / "nearest.npy", exact_nearest(vectors[:rows], vectors[rows:], TOP_K))


def open_dataset(folder: Path) -> Dataset:
    """Maps what `make_dataset` wrote."""
    nearest = np.load(folder / "nearest.npy")
    draw = np.load(folder / "draw.npy", mmap_mode="r")
    rows = len(draw)
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    cluster = np.load(folder / "cluster.npy", mmap_mode="r")
    return Dataset(vectors[:rows], np.array(vectors[rows:]), nearest, draw, cluster[:rows])


def exact_nearest(vectors: NDArray[np.float32], queries: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """Rows of the best inner products by comparing everything, shape (q, min(top_k, n))."""
    scores = np.empty((len(queries), len(vectors)), dtype=np.float32)
    for start in range(0, len(vectors), _CHUNK):
        scores[:, start : start + _CHUNK] = queries @ vectors[start : start + _CHUNK].T
    wanted = min(top_k, len(vectors))
    if wanted == 0:
        return np.empty((len(queries), 0), dtype=np.int64)
    some = np.argpartition(-scores, wanted - 1, axis=1)[:, :wanted]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1)
    return np.take_along_axis(some, order, axis=1)
