from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.oracle import assert_exact
from twinlens.index import flat
from twinlens.index.flat import FlatIndex
from twinlens.index.kinds.exact import compare_all
from twinlens.index.vectors import unit_vectors

D = 16
VECTORS = unit_vectors(np.random.default_rng(0).standard_normal((300, D)), D)
QUERIES = unit_vectors(np.random.default_rng(1).standard_normal((7, D)), D)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> FlatIndex:
    """One that lets go of its lock after every two queries."""
    monkeypatch.setattr(flat, "_LEAST_QUERIES", 2)
    monkeypatch.setattr(flat, "_COMPARED_AT_ONCE", 1)
    made = FlatIndex(D)
    made.upsert(np.arange(300), VECTORS)
    return made


def check(found: tuple[np.ndarray, np.ndarray], held: dict[int, np.ndarray], top_k: int) -> None:
    scores, keys = found
    assert scores.shape == keys.shape == (len(QUERIES), min(top_k, len(held)))
    for query, of_scores, of_keys in zip(QUERIES, scores, keys, strict=True):
        assert_exact(query, held, top_k, list(zip(of_keys.tolist(), of_scores.tolist(), strict=True)))


@pytest.mark.parametrize("top_k", [1, 10, 300, 500])
def test_a_batch_in_parts_finds_what_each_of_its_queries_would(index: FlatIndex, top_k: int) -> None:
    check(index.search(QUERIES, top_k), dict(enumerate(VECTORS)), top_k)
    among = np.arange(0, 300, 7)
    check(index.search(QUERIES, top_k, among=among), {key: VECTORS[key] for key in among.tolist()}, top_k)


@pytest.mark.parametrize(
    "write",
    [
        lambda index: index.delete(np.arange(100)),
        lambda index: index.upsert(np.arange(1000, 1050), VECTORS[:50]),
    ],
)
def test_a_writer_waits_for_a_part_of_a_batch_only(
    index: FlatIndex, monkeypatch: pytest.MonkeyPatch, write: Callable[[FlatIndex], None]
) -> None:
    writer = threading.Thread(target=write, args=[index])
    parts: list[int] = []

    def watched(*given: Any, **options: Any) -> Any:
        parts.append(len(given[2]))
        if len(parts) == 1:
            writer.start()
            while not index._lock._writers_waiting:
                pass
        else:
            writer.join()
        return compare_all(*given, **options)

    monkeypatch.setattr(flat, "compare_all", watched)
    scores, keys = index.search(QUERIES, 400)
    assert parts == [2, 2, 2, 1]
    assert scores.shape == keys.shape == (7, min(300, len(index)))
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in keys.tolist())
