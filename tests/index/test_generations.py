from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.items import SPACE, axis, new_item
from twinlens.index import generations, refill
from twinlens.index import store as store_statements
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import InvalidArgument, InvalidVector, SpaceMismatch
from twinlens.index.item import Item, Modality
from twinlens.index.store import Row, missing_items

NEW = "space-two"


def store(collection: Collection, *ids: str, space_id: str = SPACE) -> None:
    collection.upsert(
        [new_item(item_id, image_vector=axis(0, collection.dimension), caption=item_id) for item_id in ids],
        space_id=space_id,
    )


def names(items: list[Item]) -> list[str]:
    return [item.id for item in items]


def fill(collection: Collection, generation: int, dimension: int = 4) -> None:
    while items := collection.missing(generation, limit=2):
        collection.write_vectors(generation, {item.id: {Modality.TEXT: np.ones(dimension)} for item in items})


def test_a_new_generation_is_filled_beside_the_active_one_and_then_takes_over(collection: Collection) -> None:
    store(collection, "a", "b", "c")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    assert names(collection.missing(generation, limit=10)) == ["a", "b", "c"]
    fill(collection, generation)
    assert collection.missing(generation, limit=10) == []
    assert (collection.space_id, collection.dimension, collection.stats().image_vectors) == (SPACE, 8, 3)
    collection.activate(generation)
    assert (collection.space_id, collection.dimension) == (NEW, 4)
    stats = collection.stats()
    assert (stats.items, stats.image_vectors, stats.text_vectors) == (3, 0, 3)
    hits = collection.search(np.ones((1, 4)), modality=Modality.TEXT, top_k=9, space_id=NEW)[0]
    assert [(hit.item.id, hit.score) for hit in hits] == [("a", 1.0), ("b", 1.0), ("c", 1.0)]
    with pytest.raises(SpaceMismatch, match="space-two, not of space space-one"):
        collection.search(np.ones((1, 8)), modality=Modality.TEXT, top_k=9, space_id=SPACE)


def test_a_generation_is_not_activated_while_items_are_missing(collection: Collection) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    collection.write_vectors(generation, {"a": {Modality.IMAGE: np.ones(4)}})
    with pytest.raises(InvalidArgument, match=f"generation {generation} of collection photos still misses 1 items"):
        collection.activate(generation)
    assert collection.space_id == SPACE


def test_filling_goes_on_where_it_stopped_after_a_restart(
    tmp_path: Path,
    open_catalog: Callable[[Path], Catalog],
) -> None:
    catalog = open_catalog(tmp_path)
    collection = catalog.create("photos", space_id=SPACE, dimension=8)
    store(collection, "a", "b", "c")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    collection.write_vectors(generation, {"b": {Modality.TEXT: np.ones(4)}})
    catalog.close()
    catalog = open_catalog(tmp_path)
    collection = catalog.get("photos")
    assert collection.begin_generation(space_id=NEW, dimension=4) == generation
    assert names(collection.missing(generation, limit=10)) == ["a", "c"]
    fill(collection, generation)
    collection.activate(generation)
    catalog.close()
    catalog = open_catalog(tmp_path)
    assert catalog.get("photos").space_id == NEW
    assert catalog.get("photos").stats().text_vectors == 3
    catalog.close()


def test_an_item_with_nothing_to_embed_is_not_missing(collection: Collection) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    collection.write_vectors(generation, {"a": {}, "b": {Modality.IMAGE: np.ones(4)}})
    assert collection.missing(generation, limit=10) == []
    collection.activate(generation)
    assert (collection.stats().items, collection.stats().image_vectors) == (2, 1)


def test_items_stored_or_replaced_while_filling_are_missing_again(collection: Collection) -> None:
    store(collection, "a", "b", "c")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    fill(collection, generation)
    store(collection, "b", "d")
    assert names(collection.missing(generation, limit=10)) == ["b", "d"]
    assert names(collection.missing(generation, limit=1)) in (["b"], ["d"])
    fill(collection, generation)
    collection.activate(generation)
    assert collection.stats().text_vectors == 4


def test_writers_do_not_wait_while_missing_items_are_looked_for(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    real = missing_items

    def write_then_look(*given: Any) -> list[tuple[Row, Item]]:
        found: list[tuple[Row, Item]] = real(*given)
        store(collection, "a")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(store_statements, "missing_items", write_then_look)
        made = {item.id: {Modality.IMAGE: np.ones(4)} for item in collection.missing(generation, limit=2)}
    assert made.keys() == {"a", "b"}
    collection.write_vectors(generation, made)
    assert names(collection.missing(generation, limit=10)) == ["a"], "it was replaced after it was read"


def test_vectors_made_from_content_that_was_replaced_meanwhile_are_not_stored(collection: Collection) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    made = {item.id: {Modality.IMAGE: np.ones(4)} for item in collection.missing(generation, limit=10)}
    store(collection, "a")
    collection.write_vectors(generation, made)
    assert names(collection.missing(generation, limit=10)) == ["a"]


def test_vectors_of_an_item_that_was_deleted_and_stored_again_are_not_stored(collection: Collection) -> None:
    store(collection, "a")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    assert names(collection.missing(generation, limit=10)) == ["a"]
    collection.delete(["a"])
    store(collection, "a")
    collection.write_vectors(generation, {"a": {Modality.IMAGE: np.ones(4)}})
    assert names(collection.missing(generation, limit=10)) == ["a"]


def test_items_deleted_meanwhile_are_ignored(collection: Collection) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    collection.delete(["a"])
    collection.write_vectors(generation, {key: {Modality.IMAGE: np.ones(4)} for key in ("a", "b", "never")})
    collection.activate(generation)
    assert collection.stats().image_vectors == 1


def test_the_generation_before_stays_and_can_come_back(collection: Collection) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    fill(collection, generation)
    collection.activate(generation)
    store(collection, "b", space_id=NEW)
    old = collection.begin_generation(space_id=SPACE, dimension=8)
    assert names(collection.missing(old, limit=10)) == ["b"]
    collection.write_vectors(old, {"b": {Modality.IMAGE: axis(1)}})
    collection.activate(old)
    np.testing.assert_array_equal(collection.get_vector("a", Modality.IMAGE), axis(0))
    np.testing.assert_array_equal(collection.get_vector("b", Modality.IMAGE), axis(1))
    assert collection.space_id == SPACE


def test_beginning_with_the_active_space_changes_nothing(collection: Collection) -> None:
    store(collection, "a")
    active = collection.begin_generation(space_id=SPACE, dimension=8)
    assert collection.missing(active, limit=10) == []
    collection.activate(active)
    assert collection.stats().image_vectors == 1


def test_vectors_written_to_the_active_generation_are_found_at_once(collection: Collection) -> None:
    store(collection, "a", "b")
    active = collection.begin_generation(space_id=SPACE, dimension=8)
    collection.write_vectors(active, {"a": {Modality.IMAGE: axis(3)}})
    hits = collection.search(axis(3)[np.newaxis], modality=Modality.IMAGE, top_k=1, space_id=SPACE)[0]
    assert [(hit.item.id, hit.score) for hit in hits] == [("a", 1.0)]


def test_a_dropped_generation_is_gone_but_never_the_active_one(collection: Collection) -> None:
    store(collection, "a")
    active = collection.begin_generation(space_id=SPACE, dimension=8)
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    fill(collection, generation)
    collection.drop_generation(generation)
    for call in (
        lambda: collection.missing(generation, limit=1),
        lambda: collection.activate(generation),
        lambda: collection.drop_generation(generation),
        lambda: collection.write_vectors(generation, {}),
    ):
        with pytest.raises(InvalidArgument, match=f"collection photos has no generation {generation}"):
            call()
    with pytest.raises(InvalidArgument, match="is active and cannot be dropped"):
        collection.drop_generation(active)
    again = collection.begin_generation(space_id=NEW, dimension=4)
    assert again > generation
    assert names(collection.missing(again, limit=5)) == ["a"]


def test_a_generation_is_dropped_in_pieces_between_which_others_write(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refill, "_DROPPED_AT_ONCE", 2)
    store(collection, *"abcdefg")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    fill(collection, generation)
    pieces: list[int] = []
    empty = generations.empty_generation

    def emptied(connection: sqlite3.Connection, number: int, keys: range) -> None:
        empty(connection, number, keys)
        pieces.append(collection.count())

    monkeypatch.setattr(generations, "empty_generation", emptied)
    collection.drop_generation(generation)
    assert pieces == [7] * 4
    assert [state.number for state in collection.generations()] == [1]
    with pytest.raises(InvalidArgument, match="has no generation 2"):
        collection.missing(generation, limit=1)
    assert collection.begin_generation(space_id=NEW, dimension=5) == 3


@pytest.mark.parametrize("dimension", [0, -1])
def test_a_generation_needs_a_dimension(collection: Collection, dimension: int) -> None:
    with pytest.raises(InvalidArgument, match=f"not {dimension}"):
        collection.begin_generation(space_id=NEW, dimension=dimension)


def test_a_space_has_one_dimension(collection: Collection) -> None:
    with pytest.raises(InvalidArgument, match="space space-one has dimension 8 in collection photos, not 4"):
        collection.begin_generation(space_id=SPACE, dimension=4)


def test_vectors_of_another_dimension_are_refused_and_nothing_is_written(collection: Collection) -> None:
    store(collection, "a", "b")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    with pytest.raises(InvalidVector, match="item 'b' has dimension 8, but 4 is wanted"):
        collection.write_vectors(generation, {"a": {Modality.TEXT: np.ones(4)}, "b": {Modality.TEXT: np.ones(8)}})
    assert len(collection.missing(generation, limit=10)) == 2


def test_going_through_vectors_keeps_to_the_generation_it_began_with(collection: Collection) -> None:
    store(collection, "a", "b", "c")
    generation = collection.begin_generation(space_id=NEW, dimension=4)
    fill(collection, generation)
    walk = collection.iter_vectors(Modality.IMAGE, batch=1)
    ids, vectors = next(walk)
    collection.activate(generation)
    rest = list(walk)
    assert ids + [item_id for batch, _ in rest for item_id in batch] == ["a", "b", "c"]
    assert {vectors.shape[1], *(array.shape[1] for _, array in rest)} == {8}
