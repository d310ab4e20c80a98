"""Vectors with what their items' metadata says, and the version that tells whether any of it changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality


def test_vectors_come_with_the_value_under_a_key_in_the_order_of_storing(collection: Collection) -> None:
    given = [{"label": "cat"}, {}, {"label": 3, "other": 1}, {"label": None}, {"label": ["a"]}, {'q"uo.te': "odd"}]
    collection.upsert(
        [new_item(str(i), image_vector=axis(i), metadata=each) for i, each in enumerate(given)], space_id=SPACE
    )
    collection.upsert([new_item("words", text_vector=axis(0), metadata={"label": "cat"})], space_id=SPACE)
    pages = list(collection.iter_metadata("label", Modality.IMAGE, batch=4))
    assert [values for values, _ in pages] == [["cat", None, 3, None], [["a"], None]]
    np.testing.assert_array_equal(np.concatenate([vectors for _, vectors in pages]), np.eye(DIMENSION)[:6])
    ((values, _),) = collection.iter_metadata('q"uo.te', Modality.IMAGE)
    assert values[-1] == "odd"
    assert [values for values, _ in collection.iter_metadata("label", Modality.TEXT)] == [["cat"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.upsert([new_item("a")], space_id=SPACE),
        lambda c: c.upsert([new_item("b", metadata={"label": "x"})], space_id=SPACE),
        lambda c: c.delete(["b"]),
    ],
)
def test_every_change_gives_another_version(collection: Collection, change: Callable[[Collection], object]) -> None:
    collection.upsert([new_item("b")], space_id=SPACE)
    before = collection.version
    assert collection.version == before
    change(collection)
    assert collection.version != before


def test_moving_to_another_generation_gives_another_version(collection: Collection) -> None:
    collection.upsert([new_item("a")], space_id=SPACE)
    generation = collection.begin_generation(space_id="space-two", dimension=4)
    collection.write_vectors(generation, {"a": {Modality.IMAGE: np.ones(4)}})
    before = collection.version
    collection.activate(generation)
    assert collection.version != before


def test_a_collection_made_anew_under_the_same_name_has_another_version(catalog: Catalog) -> None:
    versions = set()
    for _ in range(3):
        versions.add(catalog.create("again", space_id=SPACE, dimension=DIMENSION).version)
        catalog.delete("again")
    assert len(versions) == 3
