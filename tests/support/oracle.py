"""Exact search in plain NumPy float64: what every engine is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 2e-6  # a float32 cosine of float32 unit vectors against the same in float64


def cosines(query: NDArray[Any], vectors: Mapping[Any, NDArray[Any]]) -> dict[Any, float]:
    """The cosine of one query, shape (d,), with each vector, shape (d,)."""
    wide = np.asarray(query, dtype=np.float64)
    wide = wide / np.linalg.norm(wide)
    scores = {}
    for key, vector in vectors.items():
        other = np.asarray(vector, dtype=np.float64)
        scores[key] = float(wide @ other / np.linalg.norm(other))
    return scores


def assert_sound(
    query: NDArray[Any],
    vectors: Mapping[Any, NDArray[Any]],
    top_k: int,
    found: Sequence[tuple[Any, float]],
) -> None:
    """Checks what holds of approximate results too: as many as there can be, none twice, none made up, right scores.

    Args:
        query: Shape (d,).
        vectors: All there is to find, by key.
        top_k: How many were asked for.
        found: Keys and scores, best first.
    """
    expected = cosines(query, vectors)
    keys = [key for key, _ in found]
    scores = [score for _, score in found]
    assert len(found) == min(top_k, len(vectors)), f"{len(found)} hits of {len(vectors)} for top_k {top_k}"
    assert len(set(keys)) == len(keys), "a key was found twice"
    assert set(keys) <= set(expected), f"never added: {set(keys) - set(expected)}"
    assert scores == sorted(scores, reverse=True), "not best first"
    np.testing.assert_allclose(scores, [expected[key] for key in keys], rtol=0, atol=TOLERANCE)


def assert_exact(
    query: NDArray[Any],
    vectors: Mapping[Any, NDArray[Any]],
    top_k: int,
    found: Sequence[tuple[Any, float]],
) -> None:
    """Checks one result against brute force; where scores tie within the tolerance, any choice among them will do.

    Args:
        query: Shape (d,).
        vectors: All there is to find, by key.
        top_k: How many were asked for.
        found: Keys and scores, best first.
    """
    assert_sound(query, vectors, top_k, found)
    scores = [score for _, score in found]
    best = sorted(cosines(query, vectors).values(), reverse=True)[: len(found)]
    np.testing.assert_allclose(scores, best, rtol=0, atol=TOLERANCE)
