from __future__ import annotations

import numpy as np
import pytest

from twinlens.index.kinds.exact import best_rows, compare_all, rank_near, rank_one, rank_rows
from twinlens.index.search_threads import SearchThreads
from twinlens.index.vectors import unit_vectors


@pytest.fixture
def matrix(rng: np.random.Generator) -> np.ndarray:
    vectors = unit_vectors(rng.standard_normal((3000, 24)), 24)
    vectors[100:140] = vectors[100]  # ties
    return vectors


KEYS = np.arange(3000, dtype=np.int64) * 7


@pytest.mark.parametrize("found", [1, 10, 39, 40, 41, 500, 1500])
def test_two_steps_rank_as_one_does(matrix: np.ndarray, rng: np.random.Generator, found: int) -> None:
    queries = np.stack([matrix[100], matrix[7], -matrix[100]])
    rows = np.stack([rng.permutation(3000)[:1500] for _ in queries])
    expected_scores, expected_keys = rank_rows(matrix, KEYS, queries, rows, found)
    for some in ([0], [1], [2], [0, 1, 2]):  # alone and together
        scores, keys, _ = rank_near(matrix, KEYS, queries[some], rows[some], found)
        np.testing.assert_array_equal(scores, expected_scores[some])
        np.testing.assert_array_equal(keys, expected_keys[some])
        if len(some) == 1:
            scores, keys, _ = rank_one(matrix, KEYS, queries[some], rows[some], found)
            np.testing.assert_array_equal(scores, expected_scores[some])
            np.testing.assert_array_equal(keys, expected_keys[some])


@pytest.mark.parametrize("candidates", [40, 60, 140])
def test_what_is_no_candidate_is_left_out(matrix: np.ndarray, candidates: int) -> None:
    rows = np.arange(90, 90 + candidates)
    rows[::3] = -1
    there = np.sort(rows[rows >= 0])
    scores, keys, _ = rank_near(matrix, KEYS, matrix[100:101], rows[np.newaxis], 8)
    expected_scores, expected_keys = best_rows(matrix, KEYS, matrix[100], there, 8)
    np.testing.assert_array_equal(scores[0], expected_scores)
    np.testing.assert_array_equal(keys[0], expected_keys)


@pytest.mark.parametrize(
    ("rows", "sure"),
    [
        (np.arange(100, 140), False),  # all alike
        (np.arange(90, 150), True),
        (np.r_[np.arange(100, 140), -np.ones(60, np.int64)], False),
        (np.r_[np.arange(100, 105), -np.ones(60, np.int64)], True),  # no more than wanted
        (np.arange(100, 110), False),
        (np.arange(95, 110), True),
    ],
)
def test_it_is_known_whether_others_might_tie_with_the_last(
    matrix: np.ndarray, rows: np.ndarray, *, sure: bool
) -> None:
    queries = np.stack([matrix[100], matrix[7]])
    for many in (1, 2):
        found = rank_near(matrix, KEYS, queries[:many], np.stack([rows, np.roll(rows, 1)])[:many], 5)
        assert found[2][0] == sure
    if rows.min() >= 0:
        assert rank_one(matrix, KEYS, queries[:1], rows[np.newaxis], 5)[2] == sure


def test_many_queries_and_many_candidates_are_scored_as_one_and_few(
    matrix: np.ndarray, rng: np.random.Generator
) -> None:
    rows = np.stack([rng.permutation(3000) for _ in range(5)])
    for i, (scores, keys) in enumerate(zip(*rank_rows(matrix, KEYS, matrix[:5], rows, 3000), strict=True)):
        alone_scores, alone_keys = best_rows(matrix, KEYS, matrix[i], np.sort(rows[i]), 3000)
        np.testing.assert_array_equal(scores, alone_scores)
        np.testing.assert_array_equal(keys, alone_keys)


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_of_those_shown_all_are_compared(matrix: np.ndarray, rng: np.random.Generator, share: float) -> None:
    shown = rng.random(3000) < share
    rows = np.flatnonzero(shown)
    found = compare_all(matrix, KEYS, matrix[:5], 12, SearchThreads(1), shown=shown)
    for query, scores, keys in zip(matrix[:5], *found, strict=True):
        expected_scores, expected_keys = best_rows(matrix, KEYS, query, rows, 12)
        np.testing.assert_array_equal(scores, expected_scores)
        np.testing.assert_array_equal(keys, expected_keys)
