"""Dividing vectors into lists, of which a search looks at few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from twinlens.index.errors import MergeStopped
from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.sample import sample_rows
from twinlens.index.protocol import Vectors

_LISTS_BY_ROOT = 4
_POINTS_A_CENTRE = 48
_LEAST_POINTS_A_CENTRE = 8
_ROUNDS = 8
_ADDED_ROWS = 16384


def count_lists(count: int) -> int:
    """How many lists: 4 √n, as FAISS's guidelines have it, but no more than there are vectors to fill them."""
    return max(1, min(int(_LISTS_BY_ROOT * math.sqrt(count)), count // _LEAST_POINTS_A_CENTRE))


def train_centres(matrix: Vectors, lists: int, stop: Callable[[], bool]) -> Any:
    """Finds the middle of each list by k-means on the sphere, over a sample.

    Args:
        matrix: Unit vectors, shape (n, d).
        lists: How many.
        stop: Asked between rounds; True ends it.

    Returns:
        An `IndexFlatIP` of the centres.

    Raises:
        MergeStopped: `stop` said so.
    """
    faiss = import_faiss()
    sample = np.ascontiguousarray(matrix[sample_rows(len(matrix), _POINTS_A_CENTRE * lists)])
    clustering = faiss.Clustering(matrix.shape[1], lists)
    clustering.niter = 1  # a round at a time: it goes on from the centres it has
    clustering.spherical = True
    clustering.seed = 1
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = 10**9
    centres = faiss.IndexFlatIP(matrix.shape[1])
    for _ in range(_ROUNDS):
        if stop():
            raise MergeStopped("merging was stopped")
        centres.reset()
        clustering.train(sample, centres)
    return centres


def fill_lists(index: Any, matrix: Vectors, stop: Callable[[], bool]) -> None:
    """Adds all vectors to a trained `IndexIVF`; a vector's number is its row.

    Raises:
        MergeStopped: `stop` said so.
    """
    for start in range(0, len(matrix), _ADDED_ROWS):
        if stop():
            raise MergeStopped("merging was stopped")
        index.add(matrix[start : start + _ADDED_ROWS])
