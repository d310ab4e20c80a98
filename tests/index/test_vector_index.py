"""One body for every engine; see `ENGINES` in conftest. What approximates is held to brute force where it is asked for
exactness, and otherwise to all that has to be true of an approximation too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.oracle import assert_exact, assert_sound
from twinlens.index.errors import CollectionError, EngineUnavailable, InvalidArgument, InvalidVector
from twinlens.index.flat import FlatIndex
from twinlens.index.protocol import VectorIndex
from twinlens.index.vectors import unit_vectors

MakeEngine = Callable[[int], VectorIndex]


def keys(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def random_units(rng: np.random.Generator, n: int, dimension: int) -> np.ndarray:
    return unit_vectors(rng.standard_normal((n, dimension)), dimension)


def pairs(result: tuple[np.ndarray, np.ndarray], row: int = 0) -> list[tuple[int, float]]:
    scores, found = result
    return list(zip(found[row].tolist(), scores[row].tolist(), strict=True))


@pytest.mark.parametrize("dimension", [1, 3, 64, 512])
@pytest.mark.parametrize("n", [1, 2, 200])
def test_search_equals_brute_force(
    engine: MakeEngine, always_exact: bool, rng: np.random.Generator, n: int, dimension: int
) -> None:
    index = engine(dimension)
    vectors = random_units(rng, n, dimension)
    numbers = rng.choice(10**12, size=n, replace=False).astype(np.int64)
    index.upsert(numbers, vectors)
    queries = random_units(rng, 5, dimension)
    held = dict(zip(numbers.tolist(), vectors, strict=True))
    for top_k in (1, 7, 1000):
        exact, any_way = index.search(queries, top_k, exact=True), index.search(queries, top_k)
        for row, query in enumerate(queries):
            assert_exact(query, held, top_k, pairs(exact, row))
            assert_sound(query, held, top_k, pairs(any_way, row))
            if always_exact:
                assert pairs(any_way, row) == pairs(exact, row)


def test_an_approximation_finds_nearly_all_of_the_ten_nearest(engine: MakeEngine, rng: np.random.Generator) -> None:
    dimension = 24
    centres = rng.standard_normal((40, dimension))
    made = centres[rng.integers(40, size=2100)] + 0.4 * rng.standard_normal((2100, dimension))
    vectors, queries = unit_vectors(made[:2000], dimension), unit_vectors(made[2000:], dimension)
    index = engine(dimension)
    index.upsert(np.arange(2000, dtype=np.int64), vectors)
    nearest = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    _, found = index.search(queries, 10)
    recall = np.mean([len(set(of_query) & set(best)) / 10 for of_query, best in zip(found, nearest, strict=True)])
    assert recall >= 0.95


def test_only_those_among_are_found_and_all_that_are_wanted(engine: MakeEngine, rng: np.random.Generator) -> None:
    index = engine(8)
    vectors = random_units(rng, 1000, 8)
    numbers = np.arange(1000, dtype=np.int64) * 3
    index.upsert(numbers[:900], vectors[:900])
    index.upsert(numbers[900:], vectors[900:])
    index.upsert(numbers[880:890], vectors[:10])
    index.delete(numbers[50:100])
    held = {int(key): vectors[row - 880 if 880 <= row < 890 else row] for row, key in enumerate(numbers)}
    for key in numbers[50:100].tolist():
        del held[key]
    queries = random_units(rng, 3, 8)
    for share in (0.0, 0.002, 0.05, 0.5, 0.98, 1.0):
        among = np.sort(rng.choice(3000, size=round(3000 * share), replace=False)).astype(np.int64)
        allowed = {key: held[key] for key in among.tolist() if key in held}
        for top_k in (1, 10, 2000):
            exact, any_way = (index.search(queries, top_k, among=among, exact=exact) for exact in (True, False))
            for row, query in enumerate(queries):
                assert_exact(query, allowed, top_k, pairs(exact, row))
                assert_sound(query, allowed, top_k, pairs(any_way, row))


@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_of_changes_leaves_what_a_dict_would_hold(engine: MakeEngine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = engine(6)
    model: dict[int, np.ndarray] = {}
    for _ in range(60):
        chosen = rng.integers(40, size=rng.integers(1, 9)).astype(np.int64)
        if rng.random() < 0.6:
            vectors = random_units(rng, len(chosen), 6)
            index.upsert(chosen, vectors)
            model.update(zip(chosen.tolist(), vectors, strict=True))
        else:
            index.delete(chosen)
            for key in chosen.tolist():
                model.pop(key, None)
        assert len(index) == len(model)
        query = random_units(rng, 1, 6)
        assert_exact(query[0], model, 5, pairs(index.search(query, 5, exact=True)))
        assert_sound(query[0], model, 5, pairs(index.search(query, 5)))


def test_an_empty_index_finds_nothing(engine: MakeEngine) -> None:
    scores, found = engine(4).search(np.eye(4, dtype=np.float32), 3)
    assert scores.shape == found.shape == (4, 0)


def test_no_queries_give_no_results(engine: MakeEngine) -> None:
    index = engine(4)
    index.upsert(keys(1, 2), np.eye(4, dtype=np.float32)[:2])
    scores, found = index.search(np.empty((0, 4), dtype=np.float32), 3)
    assert scores.shape == found.shape == (0, 2)


def test_a_top_k_beyond_the_size_returns_all_and_no_filler(engine: MakeEngine) -> None:
    index = engine(4)
    index.upsert(keys(5, 9), np.eye(4, dtype=np.float32)[:2])
    scores, found = index.search(np.eye(4, dtype=np.float32)[:1], 100)
    assert found.tolist() == [[5, 9]]
    assert scores.tolist() == [[1.0, 0.0]]
    assert index.search(np.eye(4, dtype=np.float32)[:1], 2**40)[1].tolist() == [[5, 9]]


def test_keys_may_be_as_large_as_a_database_can_count(engine: MakeEngine) -> None:
    index = engine(4)
    index.upsert(keys(0, 2**31, 2**63 - 1), np.eye(4, dtype=np.float32)[:3])
    assert index.search(np.eye(4, dtype=np.float32)[2:3], 1)[1].tolist() == [[2**63 - 1]]
    index.delete(keys(2**63 - 1))
    assert index.search(np.eye(4, dtype=np.float32)[2:3], 9)[1].tolist() == [[0, 2**31]]


@pytest.mark.parametrize("copies", [3, 30, 2000])
def test_ties_come_by_lower_key_even_where_they_are_cut(
    engine: MakeEngine,
    always_exact: bool,
    rng: np.random.Generator,
    copies: int,
) -> None:
    index = engine(32)
    vector = random_units(rng, 1, 32)
    numbers = rng.permutation(copies).astype(np.int64)
    index.upsert(numbers, np.repeat(vector, copies, axis=0))
    index.upsert(keys(copies + 1), random_units(rng, 1, 32))
    for top_k in (1, 2, copies):
        for exact in (True, not always_exact):
            _, found = index.search(vector, top_k, exact=exact)
            assert found.tolist() == [list(range(top_k))]


def test_a_pair_has_one_score_however_many_queries_are_asked(engine: MakeEngine, rng: np.random.Generator) -> None:
    index = engine(128)
    index.upsert(np.arange(500, dtype=np.int64), random_units(rng, 500, 128))
    queries = random_units(rng, 64, 128)
    together, _ = index.search(queries, 10)
    alone = np.concatenate([index.search(query[np.newaxis], 10)[0] for query in queries])
    np.testing.assert_array_equal(together, alone)


def test_upsert_replaces(engine: MakeEngine) -> None:
    index = engine(3)
    axes = np.eye(3, dtype=np.float32)
    index.upsert(keys(1, 2), axes[:2])
    index.upsert(keys(1), axes[2:])
    assert len(index) == 2
    assert pairs(index.search(axes[2:], 2)) == [(1, 1.0), (2, 0.0)]


def test_of_a_key_given_twice_the_later_vector_stays(engine: MakeEngine) -> None:
    index = engine(3)
    axes = np.eye(3, dtype=np.float32)
    index.upsert(keys(1, 1), axes[:2])
    assert len(index) == 1
    assert pairs(index.search(axes[1:2], 2)) == [(1, 1.0)]


def test_deleted_keys_are_not_found_and_unknown_ones_ignored(engine: MakeEngine) -> None:
    index = engine(3)
    axes = np.eye(3, dtype=np.float32)
    index.upsert(keys(1, 2, 3), axes)
    index.delete(keys(1, 1, 77))
    assert [key for key, _ in pairs(index.search(axes[:1], 5))] == [2, 3]
    index.delete(keys(2, 3))
    assert len(index) == 0


def test_scores_never_leave_the_range_of_a_cosine(engine: MakeEngine, rng: np.random.Generator) -> None:
    vectors = random_units(rng, 300, 7)
    index = engine(7)
    index.upsert(np.arange(300, dtype=np.int64), vectors)
    scores, _ = index.search(np.concatenate([vectors, -vectors]), 300)
    assert scores.max() <= 1
    assert scores.min() >= -1


def test_it_does_not_change_when_the_callers_array_does(engine: MakeEngine) -> None:
    index = engine(2)
    vectors = np.eye(2, dtype=np.float32)
    index.upsert(keys(1, 2), vectors)
    vectors[:] = 0
    assert pairs(index.search(np.eye(2, dtype=np.float32)[:1], 1)) == [(1, 1.0)]


@pytest.mark.parametrize("top_k", [0, -1])
def test_a_top_k_below_one_is_refused(engine: MakeEngine, top_k: int) -> None:
    with pytest.raises(InvalidArgument, match=f"top_k is {top_k}"):
        engine(2).search(np.eye(2, dtype=np.float32), top_k)


def test_other_dimensions_are_refused(engine: MakeEngine) -> None:
    index = engine(2)
    with pytest.raises(InvalidVector, match=r"\(1, 3\).*\(1, 2\)"):
        index.upsert(keys(1), np.ones((1, 3), dtype=np.float32))
    with pytest.raises(InvalidVector, match=r"\(1, 3\).*\(q, 2\)"):
        index.search(np.ones((1, 3), dtype=np.float32), 1)


def test_a_closed_index_says_so(engine: MakeEngine) -> None:
    index = engine(2)
    index.close()
    with pytest.raises(CollectionError, match="closed"):
        index.search(np.eye(2, dtype=np.float32), 1)


def test_changing_while_searching_is_safe(engine: MakeEngine) -> None:
    dimension, stable = 16, 50
    index = engine(dimension)
    vectors = random_units(np.random.default_rng(0), 400, dimension)
    index.upsert(np.arange(stable, dtype=np.int64), vectors[:stable])
    failures: list[BaseException] = []

    def change(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(80):
            chosen = rng.integers(stable, 400, size=20).astype(np.int64)
            index.upsert(chosen, vectors[chosen])
            index.delete(chosen[:10])

    def search(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(80):
            number = int(rng.integers(stable))
            scores, found = index.search(vectors[number : number + 1], 20)
            assert found[0, 0] == number
            assert len(set(found[0].tolist())) == 20
            np.testing.assert_allclose(scores[0], vectors[found[0]] @ vectors[number], atol=1e-5)

    def run(work: Callable[[int], None], seed: int) -> None:
        try:
            work(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work, i)) for i, work in enumerate([change, change, search, search])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_without_faiss_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(EngineUnavailable, match=r"twinlens\[cpu\]"):
        FlatIndex(4)
