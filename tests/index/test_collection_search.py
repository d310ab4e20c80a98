from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.items import SPACE, axis, new_item
from tests.support.oracle import assert_exact
from twinlens.index import store
from twinlens.index.collection import Collection
from twinlens.index.errors import InvalidArgument, InvalidVector, SpaceMismatch
from twinlens.index.item import Hit, Item, Modality
from twinlens.index.protocol import VectorIndex
from twinlens.index.search import live_hits


def search(collection: Collection, queries: Any, top_k: int = 10, **fields: Any) -> list[list[Hit]]:
    arguments = {"modality": Modality.IMAGE, "space_id": SPACE, **fields}
    return collection.search(np.asarray(queries), top_k=top_k, **arguments)


@pytest.mark.parametrize("modality", list(Modality))
@pytest.mark.parametrize("exact", [False, True])
def test_search_equals_brute_force(
    collection: Collection,
    rng: np.random.Generator,
    modality: Modality,
    exact: bool,
) -> None:
    vectors = {f"{i}": rng.standard_normal((2, 8)) for i in range(150)}
    collection.upsert(
        [new_item(key, image_vector=image, text_vector=text) for key, (image, text) in vectors.items()],
        space_id=SPACE,
    )
    queries = rng.standard_normal((4, 8)) * 100
    of_modality = {key: pair[0 if modality is Modality.IMAGE else 1] for key, pair in vectors.items()}
    for top_k in (1, 10, 1000):
        results = search(collection, queries, top_k, modality=modality, exact=exact)
        for query, hits in zip(queries, results, strict=True):
            assert_exact(query, of_modality, top_k, [(hit.item.id, hit.score) for hit in hits])


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put-text", "delete", "search"]), st.integers(0, 7), st.integers(0, 10**6)),
    max_size=25,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_sequence_of_changes_is_searched_as_brute_force_would(collection: Collection, steps: list[Any]) -> None:
    collection.delete([f"{i}" for i in range(8)])
    model: dict[str, np.ndarray] = {}
    for action, number, seed in steps:
        item_id, vector = f"{number}", np.random.default_rng(seed).standard_normal(8)
        if action == "put":
            collection.upsert([new_item(item_id, image_vector=vector)], space_id=SPACE)
            model[item_id] = vector
        elif action == "put-text":
            collection.upsert([new_item(item_id, text_vector=vector)], space_id=SPACE)
            model.pop(item_id, None)
        elif action == "delete":
            collection.delete([item_id])
            model.pop(item_id, None)
        else:
            hits = search(collection, vector[np.newaxis], number + 1)[0]
            assert_exact(vector, model, number + 1, [(hit.item.id, hit.score) for hit in hits])


def test_hits_carry_the_item(collection: Collection) -> None:
    collection.upsert([new_item("a", caption="words", metadata={"x": 1})], space_id=SPACE)
    assert search(collection, [axis(0)])[0] == [Hit(collection.get("a"), 1.0)]


def test_ties_come_in_the_order_of_storing(collection: Collection) -> None:
    ids = ["z", "m", "a", "q"]
    for item_id in ids:
        collection.upsert([new_item(item_id)], space_id=SPACE)
    assert [hit.item.id for hit in search(collection, [axis(0)], 3)[0]] == ids[:3]


def test_hits_below_the_least_score_are_left_out(collection: Collection) -> None:
    collection.upsert(
        [new_item("same"), new_item("right-angle", image_vector=axis(1)), new_item("opposite", image_vector=-axis(0))],
        space_id=SPACE,
    )
    assert [hit.item.id for hit in search(collection, [axis(0)], min_score=0.0)[0]] == ["same", "right-angle"]
    assert search(collection, [axis(0)], min_score=1.1) == [[]]


def test_an_empty_collection_has_no_hits(collection: Collection) -> None:
    assert search(collection, np.eye(8)[:3]) == [[], [], []]


def test_no_queries_have_no_results(collection: Collection) -> None:
    collection.upsert([new_item("a")], space_id=SPACE)
    assert search(collection, np.empty((0, 8))) == []


@pytest.mark.parametrize(
    ("queries", "fields", "error", "message"),
    [
        ([axis(0)], {"top_k": 0}, InvalidArgument, "top_k is 0"),
        ([axis(0)], {"top_k": -3}, InvalidArgument, "top_k is -3"),
        ([axis(0)], {"modality": "sound"}, InvalidArgument, "must be one of image, text"),
        ([axis(0)], {"min_score": float("nan")}, InvalidArgument, "min_score"),
        ([np.zeros(8)], {}, InvalidVector, "query is all zeros"),
        ([axis(0), np.full(8, np.inf)], {}, InvalidVector, "query 1 has values that are not finite"),
        ([np.ones(9)], {}, InvalidVector, "query has dimension 9, but 8 is wanted"),
        (axis(0), {}, InvalidVector, "shape"),
        ([axis(0)], {"space_id": "other"}, SpaceMismatch, "holds vectors of space space-one, not of space other"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    collection: Collection,
    queries: Any,
    fields: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    collection.upsert([new_item("a")], space_id=SPACE)
    with pytest.raises(error, match=message):
        search(collection, queries, **fields)


class Ranked:
    """An engine whose answer is a fixed ranking of keys."""

    def __init__(self, ranking: list[int]) -> None:
        self.ranking = ranking

    def search(
        self, queries: np.ndarray, top_k: int, *, exact: bool = False, among: object = None
    ) -> tuple[np.ndarray, np.ndarray]:
        assert not exact
        assert among is None
        keys = np.array([self.ranking[:top_k]] * len(queries), dtype=np.int64).reshape(len(queries), -1)
        return np.linspace(1, 0, keys.size, dtype=np.float32).reshape(keys.shape), keys


@pytest.mark.parametrize("deleted", [set(), {0}, {1, 3}, {0, 1, 2, 3, 4}, set(range(9)), set(range(10))])
def test_items_deleted_during_a_search_are_made_up_for(deleted: set[int]) -> None:
    def fetch(keys: Iterable[int]) -> dict[int, Item]:
        return {key: Item(f"{key}", "", "", {}, "", False, 0.0, 0.0) for key in keys if key not in deleted}

    hits = live_hits(cast("VectorIndex", Ranked(list(range(10)))), np.ones((1, 2), dtype=np.float32), 3, fetch)
    alive = [f"{key}" for key in range(10) if key not in deleted]
    assert [hit.item.id for hit in hits[0]] == alive[:3]


@pytest.mark.parametrize("deleted", [set(), {0}, {1, 3}, {4, 5}, set(range(9))])
@pytest.mark.parametrize(("min_score", "above"), [(0.0, 10), (0.5, 5), (2.0, 0)])
def test_items_below_the_least_score_are_not_even_looked_up(deleted: set[int], min_score: float, above: int) -> None:
    asked: set[int] = set()

    def fetch(keys: Iterable[int]) -> dict[int, Item]:
        asked.update(keys)
        return {key: Item(f"{key}", "", "", {}, "", False, 0.0, 0.0) for key in keys if key not in deleted}

    engine, query = cast("VectorIndex", Scored()), np.ones((1, 2), dtype=np.float32)
    hits = live_hits(engine, query, 6, fetch, min_score=min_score)
    assert [hit.item.id for hit in hits[0]] == [f"{key}" for key in range(above) if key not in deleted][:6]
    assert asked <= set(range(above))


class Scored:
    """An engine with ten keys whose scores fall from 1 by tenths, the later half below 0.5."""

    def search(
        self, queries: np.ndarray, top_k: int, *, exact: bool = False, among: object = None
    ) -> tuple[np.ndarray, np.ndarray]:
        assert not exact
        assert among is None
        keys = np.tile(np.arange(10, dtype=np.int64)[:top_k], (len(queries), 1))
        return (1 - keys / 9).astype(np.float32), keys


def test_each_query_has_a_least_score_of_its_own(collection: Collection) -> None:
    collection.upsert([new_item(f"{i}", image_vector=axis(i)) for i in range(3)], space_id=SPACE)
    found = search(collection, [axis(0), axis(1)], top_k=2, min_score=0.5)
    assert [[hit.item.id for hit in of_query] for of_query in found] == [["0"], ["1"]]


def test_items_longer_than_asked_for_are_refused_and_the_rest_is_not_read(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"uri": "u" * 30, "caption": "c" * 30, "metadata": {"m": "m" * 22}}  # 90 characters, and one of the id
    collection.upsert([new_item(f"{i}", image_vector=axis(i), **texts) for i in range(8)], space_id=SPACE)
    assert len(search(collection, [axis(0), axis(1)], max_characters=8 * 91)[0]) == 8
    assert len(search(collection, [axis(0)], max_characters=91, min_score=0.5)[0]) == 1
    read: list[Any] = []
    whole = store._item

    def item(row: tuple[Any, ...], name: str) -> Item:
        read.append(row)
        return whole(row, name)

    monkeypatch.setattr(store, "_item", item)
    with pytest.raises(InvalidArgument, match="more than 272 characters; ask for fewer"):
        search(collection, [axis(0)], max_characters=3 * 91 - 1)
    assert len(read) == 3
