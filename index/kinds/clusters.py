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
_NOTHING = 1e-6


def count_lists(count: int) -> int:
    """How many lists: 4 √n, as FAISS's guidelines have it, but no more than there are vectors to fill them."""
    return max(1, min(int(_LISTS_BY_ROOT * math.sqrt(count)), count // _LEAST_POINTS_A_CENTRE))


def train_centres(matrix: Vectors, lists: int, stop: Callable[[], bool]) -> Any:
    """Finds the middle of each list by k-means on the sphere, over a sample.

    Args:
        matrix: Unit vectors, shape (n, d).
        lists: How many.
        stop: Asked often; True ends it.

    Returns:
        An `IndexFlatIP` of the centres.

    Raises:
        MergeStopped: `stop` said so.
    """
    sample = np.ascontiguousarray(matrix[sample_rows(len(matrix), _POINTS_A_CENTRE * lists)])
    generator = np.random.default_rng(1)
    middles = sample[generator.choice(len(sample), lists, replace=False)]
    centres = import_faiss().IndexFlatIP(matrix.shape[1])
    for _ in range(_ROUNDS):
        centres.reset()
        centres.add(middles)
        middles = _moved(centres, sample, lists, generator, stop)
    centres.reset()
    centres.add(middles)
    return centres


def _moved(
    centres: Any, sample: Vectors, lists: int, generator: np.random.Generator, stop: Callable[[], bool]
) -> Vectors:
    """The middles of what lies nearest to each centre; a centre with nothing around it moves onto some vector.

    FAISS's own `Clustering` cannot be stopped within a round, which takes minutes for many vectors.
    """
    sums = np.zeros((lists, sample.shape[1]), dtype=np.float32)
    for start in range(0, len(sample), _ADDED_ROWS):
        if stop():
            raise MergeStopped("merging was stopped")
        block = sample[start : start + _ADDED_ROWS]
        nearest = centres.search(block, 1)[1][:, 0]
        order = np.argsort(nearest, kind="stable")
        of_block, starts = np.unique(nearest[order], return_index=True)
        sums[of_block] += np.add.reduceat(block[order], starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    alone = norms[:, 0] < _NOTHING
    middles: Vectors = sums / np.maximum(norms, _NOTHING)
    middles[alone] = sample[generator.integers(len(sample), size=int(np.count_nonzero(alone)))]
    return middles


def fill_lists(index: Any, matrix: Vectors, stop: Callable[[], bool]) -> None:
    """Adds all vectors to a trained `IndexIVF`; a vector's number is its row.

    Raises:
        MergeStopped: `stop` said so.
    """
    for start in range(0, len(matrix), _ADDED_ROWS):
        if stop():
            raise MergeStopped("merging was stopped")
        index.add(matrix[start : start + _ADDED_ROWS])
