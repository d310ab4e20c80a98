from __future__ import annotations

import numpy as np
import pytest

from twinlens.index.kinds.exact import best_rows, compare_all, rank_many, rank_rows
from twinlens.index.search_threads import SearchThreads
from twinlens.index.vectors import unit_vectors


@pytest.fixture
def matrix(rng: np.random.Generator) -> np.ndarray:
    vectors = unit_vectors(rng.standard_normal((3000, 24)), 24)
    vectors[100:140] = vectors[100]  # ties
    return vectors


KEYS = np.arange(3000, dtype=np.int64) * 7


@pytest.mark.parametrize("found", [1, 10, 39, 40, 41, 500])
def test_two_steps_rank_as_one_does(matrix: np.ndarray, rng: np.random.Generator, found: int) -> None:
    rows = rng.permutation(3000)[:1500]
    for query in (matrix[100], matrix[7], -matrix[100]):
        scores, keys = rank_many(matrix, KEYS, query, rows, found)
        expected_scores, expected_keys = best_rows(matrix, KEYS, query, rows, found)
        np.testing.assert_array_equal(scores[:found], expected_scores)
        np.testing.assert_array_equal(keys[:found], expected_keys)


def test_all_that_ties_with_the_last_is_told(matrix: np.ndarray) -> None:
    assert len(rank_many(matrix, KEYS, matrix[100], np.arange(100, 140), 5)[1]) == 40
    assert len(rank_many(matrix, KEYS, matrix[100], np.arange(90, 150), 5)[1]) == 40


def test_many_queries_and_many_candidates_are_scored_as_one_and_few(
    matrix: np.ndarray, rng: np.random.Generator
) -> None:
    rows = np.stack([rng.permutation(3000) for _ in range(5)])
    for i, (scores, keys) in enumerate(rank_rows(matrix, KEYS, matrix[:5], rows, 3000)):
        alone_scores, alone_keys = best_rows(matrix, KEYS, matrix[i], np.sort(rows[i]), 3000)
        np.testing.assert_array_equal(scores, alone_scores)
        np.testing.assert_array_equal(keys, alone_keys)


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_of_those_shown_all_are_compared(matrix: np.ndarray, rng: np.random.Generator, share: float) -> None:
    shown = rng.random(3000) < share
    rows = np.flatnonzero(shown)
    for query, (scores, keys) in zip(
        matrix[:5], compare_all(matrix, KEYS, matrix[:5], 12, SearchThreads(1), shown=shown), strict=True
    ):
        expected_scores, expected_keys = best_rows(matrix, KEYS, query, rows, 12)
        np.testing.assert_array_equal(scores, expected_scores)
        np.testing.assert_array_equal(keys, expected_keys)
