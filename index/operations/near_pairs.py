"""Pairs of vectors that are near to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.protocol import Keys, VectorIndex, Vectors

# float32 sums in another order differ by far less than this for unit vectors.
_ROUNDING = 1e-5
_BLOCK = 256  # some ten milliseconds of work with the next: searches that come meanwhile do not wait longer
_BESIDE = 4096
_SCORED = 4096
_QUERIES = 64  # searches that come meanwhile wait for no more
_FIRST_K = 16
_LAST_K = 4096  # of more neighbours the farther ones are left out: these are linked over the nearer ones in practice


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs at or above the threshold.

    Attributes:
        first: Places of one side, shape (p,).
        second: Places of the other, shape (p,).
        scores: Their cosines, shape (p,).
        done: How many vectors were compared so far with all that they have to be.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    scores: NDArray[np.float32]
    done: int


def all_pairs(vectors: Vectors, places: NDArray[np.int64], threshold: float) -> Iterator[Pairs]:
    """Compares all with all, a block at a time: memory does not grow with their number.

    Args:
        vectors: Unit vectors, shape (n, d).
        places: Which of them to compare, shape (m,).
        threshold: Lowest cosine.

    Yields:
        Every pair once, the smaller place first. Cosines at the threshold are decided in float64.
    """
    for start in range(0, len(places), _BLOCK):
        here = places[start : start + _BLOCK]
        block = _at(vectors, here)
        for beside in range(start, len(places), _BESIDE):
            there = places[beside : beside + _BESIDE]
            scores = block @ _at(vectors, there).T
            if beside == start:
                scores[np.tril_indices(len(here), m=len(there))] = -2  # each pair once, and none with itself
            near = scores >= threshold - _ROUNDING
            # Unlike the lines before, what follows keeps other threads from running Python: so only where it must be.
            some = np.flatnonzero(near.any(axis=1))
            rows, columns = np.nonzero(near[some])
            rows = some[rows]
            found = scores[rows, columns]
            close = np.flatnonzero(found < threshold + _ROUNDING)
            for part in np.array_split(close, -(-len(close) // _SCORED) or 1):
                a, b = vectors[here[rows[part]]].astype(np.float64), vectors[there[columns[part]]].astype(np.float64)
                found[part] = np.einsum("nd,nd->n", a, b)
            kept = found.astype(np.float64) >= threshold  # as it was given, not rounded to 32 bits
            yield Pairs(here[rows[kept]], there[columns[kept]], found[kept], start)


def _at(vectors: Vectors, places: NDArray[np.int64]) -> Vectors:
    """The vectors at ascending places; not copied where these follow each other."""
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return vectors[places[0] : places[-1] + 1]
    return vectors[places]


def engine_pairs(
    engine: VectorIndex, vectors: Vectors, keys: Keys, places: NDArray[np.int64], threshold: float
) -> Iterator[Pairs]:
    """Searches for the neighbours of each vector, asking for more of those whose last one is still near enough.

    Args:
        engine: Holds the vectors under their keys.
        vectors: Unit vectors, shape (n, d).
        keys: Theirs, ascending, shape (n,).
        places: Which of them to look for, shape (m,).
        threshold: Lowest cosine.

    Yields:
        Pairs, one of them possibly twice; those the engine does not find are missing.
    """
    for start in range(0, len(places), _QUERIES):
        here, top_k = places[start : start + _QUERIES], _FIRST_K
        while len(here):
            scores, found = engine.search(vectors[here], top_k)
            spots = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
            near = (scores.astype(np.float64) >= threshold) & (keys[spots] == found) & (spots != here[:, np.newaxis])
            rows, columns = np.nonzero(near)
            yield Pairs(here[rows], spots[rows, columns], scores[rows, columns], start)
            if found.shape[1] < top_k or top_k >= _LAST_K:
                break
            here = here[scores[:, -1] >= threshold]
            top_k *= 4
