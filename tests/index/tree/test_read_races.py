"""What a search sees when a write falls between its two halves, merged vectors first and fresh ones after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.merging_index import MergingIndex
from tests.support.oracle import assert_exact
from twinlens.index.flat import FlatIndex
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.merged import MergedVectors
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.vectors import unit_vectors

D = 8
VECTORS = unit_vectors(np.random.default_rng(0).standard_normal((200, D)), D)
KEYS = np.arange(200, dtype=np.int64)
QUERY = VECTORS[:1]
FAR = -QUERY


@pytest.fixture
def index(tmp_path: Path) -> MergingIndex:
    made = MergingIndex(tmp_path, D, kind=Kind.FLAT)
    made.upsert(KEYS, VECTORS)
    made.merge()
    return made


def search_with(
    index: MergingIndex, monkeypatch: pytest.MonkeyPatch, write: Callable[[], None], top_k: int
) -> list[tuple[int, float]]:
    """Searches, and writes once as soon as the merged vectors have been searched."""
    writes = [write]
    search = MergedVectors.search

    def then_write(self: MergedVectors, *given: object, **options: object) -> object:
        found = search(self, *given, **options)  # type: ignore[arg-type]
        if writes:
            writes.pop()()
        return found

    monkeypatch.setattr(MergedVectors, "search", then_write)
    scores, keys = index.search(QUERY, top_k)
    assert not writes
    return list(zip(keys[0].tolist(), scores[0].tolist(), strict=True))


@pytest.mark.parametrize("top_k", [1, 3, 10, 199, 200, 500])
def test_vectors_moved_away_meanwhile_leave_no_gap(
    index: MergingIndex, monkeypatch: pytest.MonkeyPatch, top_k: int
) -> None:
    nearest = np.argsort(-(VECTORS @ QUERY[0]))[:5].astype(np.int64)
    found = search_with(index, monkeypatch, lambda: index._tree.upsert(nearest, FAR.repeat(5, axis=0)), top_k)
    after = dict(enumerate(VECTORS)) | dict.fromkeys(nearest.tolist(), FAR[0])
    assert_exact(QUERY[0], after, top_k, found)


@pytest.mark.parametrize("top_k", [1, 3, 10, 200, 500])
def test_vectors_that_come_near_meanwhile_are_found_once_or_not_yet(
    index: MergingIndex, monkeypatch: pytest.MonkeyPatch, top_k: int
) -> None:
    furthest = np.argsort(VECTORS @ QUERY[0])[:5].astype(np.int64)
    found = search_with(index, monkeypatch, lambda: index._tree.upsert(furthest, QUERY.repeat(5, axis=0)), top_k)
    after = dict(enumerate(VECTORS)) | dict.fromkeys(furthest.tolist(), QUERY[0])
    assert_exact(QUERY[0], after, top_k, found)


def test_a_new_vector_is_found_or_not_yet(index: MergingIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    found = search_with(index, monkeypatch, lambda: index._tree.upsert(np.array([999]), QUERY), 300)
    held = dict(enumerate(VECTORS))
    assert_exact(QUERY[0], held if len(found) == 200 else held | {999: QUERY[0]}, 300, found)


@pytest.mark.parametrize("top_k", [1, 10, 500])
def test_deleted_vectors_are_found_as_before_or_not_at_all(
    index: MergingIndex, monkeypatch: pytest.MonkeyPatch, top_k: int
) -> None:
    nearest = np.argsort(-(VECTORS @ QUERY[0]))[:5].astype(np.int64)
    found = search_with(index, monkeypatch, lambda: index._tree.delete(nearest), top_k)
    before = dict(enumerate(VECTORS))
    after = {key: vector for key, vector in before.items() if key not in nearest}
    assert_exact(QUERY[0], before if found[0][0] in nearest else after, top_k, found)


def test_a_merge_that_is_swapped_in_meanwhile_changes_nothing(
    index: MergingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index._tree.upsert(KEYS[:20], VECTORS[::-1][:20])
    for key, vector in zip(range(20), VECTORS[::-1][:20], strict=True):
        index._held[key] = vector
    held = dict(index._held)
    found = search_with(index, monkeypatch, index.merge, 50)
    assert_exact(QUERY[0], held, 50, found)


def test_a_vector_is_found_at_every_moment_of_its_replacement(
    index: MergingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, found = FlatIndex.upsert, []

    def watched(self: FlatIndex, keys: Keys, vectors: Vectors) -> None:
        found.append(index.search(QUERY, 1)[1].tolist())
        replace(self, keys, vectors)
        found.append(index.search(QUERY, 1)[1].tolist())

    monkeypatch.setattr(FlatIndex, "upsert", watched)
    index._tree.upsert(KEYS[:1], QUERY)
    found.append(index.search(QUERY, 1)[1].tolist())
    assert found == [[[0]]] * 3
