"""The common tests of engines, on a real Milvus server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.index.test_vector_index import (  # noqa: F401
    test_a_closed_index_says_so,
    test_a_pair_has_one_score_however_many_queries_are_asked,
    test_a_top_k_below_one_is_refused,
    test_a_top_k_beyond_the_size_returns_all_and_no_filler,
    test_an_approximation_finds_nearly_all_of_the_ten_nearest,
    test_an_empty_index_finds_nothing,
    test_any_sequence_of_changes_leaves_what_a_dict_would_hold,
    test_changing_while_searching_is_safe,
    test_deleted_keys_are_not_found_and_unknown_ones_ignored,
    test_it_does_not_change_when_the_callers_array_does,
    test_no_queries_give_no_results,
    test_of_a_key_given_twice_the_later_vector_stays,
    test_only_those_among_are_found_and_all_that_are_wanted,
    test_other_dimensions_are_refused,
    test_scores_never_leave_the_range_of_a_cosine,
    test_search_equals_brute_force,
    test_ties_come_by_lower_key_even_where_they_are_cut,
    test_upsert_replaces,
)
from twinlens.index.milvus.engine import MilvusEngine
from twinlens.index.milvus.vectors import MAX_K

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(milvus_server: str) -> Iterator[MilvusEngine]:
    made = MilvusEngine(milvus_server)
    yield made
    made.close()


@pytest.fixture
def always_exact() -> bool:
    return False


# The largest of all, 2 ** 63 - 1, is lost by servers of Milvus 2.3; SQLite counts up to it from 1.
def test_keys_may_be_large(engine: MilvusEngine) -> None:
    index = engine(4)
    large = np.array([0, 2**31, 2**63 - 2], dtype=np.int64)
    index.upsert(large, np.eye(4, dtype=np.float32)[:3])
    assert index.search(np.eye(4, dtype=np.float32)[2:3], 1)[1].tolist() == [[2**63 - 2]]
    index.delete(large[2:])
    assert index.search(np.eye(4, dtype=np.float32)[2:3], 9)[1].tolist() == [[0, 2**31]]
    index.close()


def test_more_hits_than_milvus_returns_at_once_are_found(engine: MilvusEngine, rng: np.random.Generator) -> None:
    count = MAX_K + 600
    vectors = rng.standard_normal((count, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = engine(4)
    index.upsert(np.arange(count, dtype=np.int64), vectors)
    _, found = index.search(vectors[:1], count)
    assert sorted(found[0].tolist()) == list(range(count))
    among = np.arange(0, count, 4, dtype=np.int64)
    scores, _ = index.search(vectors[:3], 20, among=among)
    expected = np.sort(vectors[:3] @ vectors[among].T, axis=1)[:, ::-1][:, :20]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    index.close()
