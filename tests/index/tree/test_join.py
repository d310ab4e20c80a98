from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.index.protocol import Keys, Vectors
from twinlens.index.tree.join import join, overlap

Scored = dict[int, float]


def found(scored: Scored, top_k: int) -> tuple[Vectors, Keys]:
    best = sorted(scored, key=lambda key: (-scored[key], key))[:top_k]
    return (
        np.array([[scored[key] for key in best]], dtype=np.float32),
        np.array([best], dtype=np.int64),
    )


scores = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])


@given(st.dictionaries(st.integers(0, 9), scores), st.dictionaries(st.integers(10, 19), scores), st.integers(1, 12))
def test_the_best_of_both_come_in_order_and_ties_by_lower_key(merged: Scored, fresh: Scored, top_k: int) -> None:
    joined = join(found(merged, top_k), found(fresh, top_k), top_k)
    expected = found(merged | fresh, top_k)
    for got, wanted in zip(joined, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@given(st.dictionaries(st.integers(0, 9), scores), st.dictionaries(st.integers(0, 9), scores), st.integers(10, 12))
def test_of_a_key_found_in_both_what_is_fresh_counts(merged: Scored, fresh: Scored, top_k: int) -> None:
    both = found(merged, top_k), found(fresh, top_k)
    assert overlap(*both) == bool(merged.keys() & fresh.keys())
    for got, wanted in zip(join(*both, top_k), found(merged | fresh, top_k), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_queries_are_joined_each_for_itself() -> None:
    merged = np.array([[0.9, 0.1], [0.5, 0.4]], dtype=np.float32), np.array([[1, 2], [3, 1]])
    fresh = np.array([[0.5], [0.7]], dtype=np.float32), np.array([[7], [7]])
    joined = join(merged, fresh, 2)
    assert joined[1].tolist() == [[1, 7], [7, 3]]
    np.testing.assert_allclose(joined[0], [[0.9, 0.5], [0.7, 0.5]], rtol=1e-6)


@pytest.mark.parametrize("queries", [0, 3])
def test_nothing_joined_with_nothing_is_nothing(queries: int) -> None:
    nothing = np.empty((queries, 0), dtype=np.float32), np.empty((queries, 0), dtype=np.int64)
    assert not overlap(nothing, nothing)
    assert join(nothing, nothing, 5)[1].shape == (queries, 0)
