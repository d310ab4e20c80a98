from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.forgetful_index import ForgetfulIndex
from tests.support.items import SPACE, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.engines import Engines
from twinlens.index.flat import FlatIndex
from twinlens.index.item import Modality
from twinlens.index.operations import recall_audit
from twinlens.index.operations.recall_audit import RecallAudit
from twinlens.index.protocol import Vectors
from twinlens.index.state import CollectionState

DIMENSION = 16


class Waiting:
    """Stands in for the thread in the background: nothing runs by itself."""

    def __init__(self) -> None:
        self.woken = 0

    def watch(self, work: object) -> None: ...

    def forget(self, work: object) -> None: ...

    def wake(self, work: object) -> None:
        del work
        self.woken += 1


@pytest.fixture
def open_state(tmp_path: Path) -> Callable[..., CollectionState]:
    """Fills a collection and opens its state without a background."""

    def opened(engine: Callable[[int], FlatIndex] = FlatIndex) -> CollectionState:
        catalog = Catalog(tmp_path)
        collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
        vectors = np.random.default_rng(0).standard_normal((300, DIMENSION))
        collection.upsert([new_item(f"{i}", image_vector=v) for i, v in enumerate(vectors)], space_id=SPACE)
        options, threads = catalog_engines(catalog).options, catalog_engines(catalog).threads
        catalog.close()
        engines = Engines(options, threads, maintenance=Waiting(), factory=engine)  # type: ignore[arg-type]
        return CollectionState(tmp_path / "collections" / "photos", "collection photos", engines)

    return opened


def catalog_engines(catalog: Catalog) -> Engines:
    return catalog._engines


def search_often(audit: RecallAudit, times: int) -> None:
    rng = np.random.default_rng(1)
    for _ in range(times):
        query = rng.standard_normal((1, DIMENSION)).astype(np.float32)
        audit.notice(Modality.IMAGE, query / np.linalg.norm(query))


def test_exact_searches_have_a_recall_of_one(open_state: Callable[..., CollectionState]) -> None:
    state = open_state()
    assert state.audit.recall(Modality.IMAGE) is None
    assert state.audit.wait_s(0.0) is None
    search_often(state.audit, 64)
    state.audit.run()
    recall = state.audit.recall(Modality.IMAGE)
    assert recall is not None
    assert (recall.value, recall.queries) == (1.0, 4), "one of sixteen is looked at"
    assert state.audit.recall(Modality.TEXT) is None
    state.close()


def test_what_searches_miss_is_measured(open_state: Callable[..., CollectionState]) -> None:
    state = open_state(ForgetfulIndex)
    search_often(state.audit, 160)
    state.audit.run()
    recall = state.audit.recall(Modality.IMAGE)
    assert recall is not None
    assert recall.value == pytest.approx(0.9)
    state.close()


def test_an_audit_takes_a_hundredth_of_the_time(
    open_state: Callable[..., CollectionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state()
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def slow(engine: object, query: Vectors) -> float:
        del engine, query
        now[0] += 0.3
        return 1.0

    monkeypatch.setattr(recall_audit, "_share_found", slow)
    search_often(state.audit, 160)
    state.audit.run()
    recall = state.audit.recall(Modality.IMAGE)
    assert recall is not None
    assert recall.queries == 2, "it ends once it has taken half a second"
    assert state.audit.wait_s(now[0]) == pytest.approx(60.0)
    assert state.audit.wait_s(now[0] + 61) == 0.0
    state.close()


def test_the_background_is_woken_once_for_many_searches(open_state: Callable[..., CollectionState]) -> None:
    state = open_state()
    search_often(state.audit, 320)
    assert state.engines.maintenance.woken == 1  # type: ignore[attr-defined]
    state.close()


def test_queries_of_the_space_before_are_passed_over(open_state: Callable[..., CollectionState]) -> None:
    state = open_state()
    audit = state.audit
    audit.notice(Modality.IMAGE, np.ones((1, DIMENSION + 1), dtype=np.float32))
    audit.run()
    assert audit.recall(Modality.IMAGE) is None
    state.close()


def test_what_was_compared_while_a_merge_ended_counts_for_neither_index(
    open_state: Callable[..., CollectionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state()
    of_index = ["before"]
    monkeypatch.setattr(state.audit, "_in_use", lambda _: of_index[0])

    def merged_meanwhile(engine: object, query: Vectors) -> float:
        del engine, query
        of_index[0] = "after"
        return 0.0

    with monkeypatch.context() as patched:
        patched.setattr(recall_audit, "_share_found", merged_meanwhile)
        search_often(state.audit, 16)
        state.audit.run()
    assert state.audit.recall(Modality.IMAGE) is None
    search_often(state.audit, 16)
    state.audit.run()
    recall = state.audit.recall(Modality.IMAGE)
    assert recall is not None
    assert (recall.value, recall.queries) == (1.0, 1)
    state.close()


def test_searches_of_a_served_collection_are_audited_and_a_merge_begins_anew(catalog: Catalog) -> None:
    collection: Collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    vectors = np.random.default_rng(0).standard_normal((300, DIMENSION))
    collection.upsert([new_item(f"{i}", image_vector=v) for i, v in enumerate(vectors)], space_id=SPACE)
    audit = collection._state.audit
    for query in vectors[:32]:
        collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=3, space_id=SPACE)
        collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=3, space_id=SPACE, exact=True)
    audit.run()  # the thread in the background may have been faster
    recall = collection.stats().indexes[0].recall
    assert recall is not None
    assert recall.value == 1.0
    collection.merge()
    assert collection.stats().indexes[0].recall is None


def test_searches_that_nobody_made_are_not_looked_at(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    query = np.ones((1, DIMENSION))
    collection.upsert([new_item("a", image_vector=query[0])], space_id=SPACE)

    def search(*, sample: bool) -> None:
        (hits,) = collection.search(query, modality=Modality.IMAGE, top_k=1, space_id=SPACE, sample=sample)
        assert [hit.item.id for hit in hits] == ["a"]

    for _ in range(20):
        search(sample=False)
    assert collection._state.audit._calls == 0
    search(sample=True)
    assert collection._state.audit._calls == 1
    catalog.close()
