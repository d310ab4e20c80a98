from __future__ import annotations

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.collection import Collection
from twinlens.index.errors import InvalidArgument
from twinlens.index.item import Modality

BOTH = (Modality.IMAGE, Modality.TEXT)


@pytest.fixture
def filled(collection: Collection) -> Collection:
    items = [new_item(f"item-{i:02d}", image_vector=axis(i), image=b"%d" % i) for i in range(7)]
    items[3] = new_item("item-03", text_vector=axis(5), caption="only words")
    items[4] = new_item("item-04", image_vector=axis(1), text_vector=axis(2), image=b"x", caption="both")
    collection.upsert(items, space_id=SPACE)
    return collection


def test_every_item_comes_once_by_id_with_the_vectors_it_has(filled: Collection) -> None:
    found = filled.export(BOTH, batch=3)
    assert (found.space_id, found.dimension, found.item_count) == (SPACE, DIMENSION, 7)
    pages = list(found.pages)
    assert [len(page.items) for page in pages] == [3, 3, 1]
    items = [item for page in pages for item in page.items]
    vectors = [of_item for page in pages for of_item in page.vectors]
    assert items == filled.list()
    for item, of_item in zip(items, vectors, strict=True):
        has = {Modality.TEXT} if item.id == "item-03" else set(BOTH) if item.id == "item-04" else {Modality.IMAGE}
        assert set(of_item) == has
        for modality, vector in of_item.items():
            np.testing.assert_array_equal(vector, filled.get_vector(item.id, modality))


def test_vectors_that_were_not_asked_for_are_not_read(filled: Collection) -> None:
    assert all(not of_item for page in filled.export().pages for of_item in page.vectors)
    kinds = {kind for page in filled.export([Modality.TEXT]).pages for of_item in page.vectors for kind in of_item}
    assert kinds == {Modality.TEXT}


def test_only_items_that_match_a_filter_come_and_count(filled: Collection) -> None:
    found = filled.export(BOTH, filter='caption = "both" OR id > "item-05"', batch=1)
    assert found.item_count == 2
    assert [item.id for page in found.pages for item in page.items] == ["item-04", "item-06"]


def test_an_empty_collection_has_no_pages(collection: Collection) -> None:
    found = collection.export(BOTH)
    assert found.item_count == 0
    assert list(found.pages) == []


def test_writes_between_two_pages_neither_repeat_nor_lose_another_item(filled: Collection) -> None:
    pages = filled.export(BOTH, batch=2).pages
    seen = [item.id for item in next(pages).items]
    filled.delete(["item-00", "item-02"])
    filled.upsert([new_item("item-00a", image_vector=axis(1), image=b"new")], space_id=SPACE)
    seen += [item.id for page in pages for item in page.items]
    assert seen == ["item-00", "item-01", "item-03", "item-04", "item-05", "item-06"]


def test_a_generation_dropped_meanwhile_ends_in_an_error_instead_of_items_without_vectors(filled: Collection) -> None:
    pages = filled.export(BOTH, batch=2).pages
    next(pages)
    generation = filled.begin_generation(space_id="other", dimension=2)
    while items := filled.missing(generation, limit=100):
        filled.write_vectors(generation, {item.id: {} for item in items})
    filled.activate(generation)
    assert next(pages).items
    filled.drop_generation(1)
    with pytest.raises(InvalidArgument, match="has no generation 1"):
        next(pages)
