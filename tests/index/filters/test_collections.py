"""Collections searched, listed and counted by filter."""

from __future__ import annotations

import pytest

from tests.support.filtered_search import fill, search
from tests.support.items import SPACE
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionNotFound
from twinlens.index.filters.errors import InvalidFilter
from twinlens.index.item import NewItem


def test_only_matching_items_are_found_and_as_many_as_asked_for(collection: Collection) -> None:
    fill(collection)
    everything = search(collection, "")
    assert len(everything) == 40
    odd = [each for each in everything if int(each) % 2]
    assert search(collection, "odd = true") == odd
    assert search(collection, "odd = true", top_k=7) == odd[:7]
    assert search(collection, "n = 5 OR n = 8") == [each for each in everything if each in {"005", "008"}]
    assert search(collection, "n > 1000") == []
    assert search(collection, "   ") == everything


def test_lists_are_paged_within_what_matches(collection: Collection) -> None:
    fill(collection)
    first = collection.list(limit=3, filter="odd = true AND n > 4")
    assert [item.id for item in first] == ["005", "007", "009"]
    following = collection.list(after=first[-1].id, limit=2, filter="odd = true AND n > 4")
    assert [item.id for item in following] == ["011", "013"]
    assert [item.id for item in collection.list(filter="n = 3 OR n = 1")] == ["001", "003"]


def test_matches_are_counted(collection: Collection) -> None:
    fill(collection)
    assert collection.count() == 40
    assert collection.count("odd = true") == 20
    assert collection.count("n < 0") == 0


def test_unreadable_filters_are_refused_everywhere_and_change_nothing(collection: Collection) -> None:
    fill(collection, 2)
    for call in (
        lambda: search(collection, "n ="),
        lambda: collection.list(filter="n ="),
        lambda: collection.count("n ="),
        lambda: collection.delete(filter="n ="),
    ):
        with pytest.raises(InvalidFilter, match="column 4: expected a value"):
            call()
    assert collection.count() == 2


def test_a_filter_on_a_closed_collection_says_so(catalog: Catalog, collection: Collection) -> None:
    catalog.delete("photos")
    with pytest.raises(CollectionNotFound):
        collection.count("n = 1")


def test_items_without_vectors_match_lists_but_are_no_hits(collection: Collection) -> None:
    collection.upsert([NewItem("bare", {}, caption="x", metadata={"n": 1})], space_id=SPACE)
    assert [item.id for item in collection.list(filter="n = 1")] == ["bare"]
    assert search(collection, "n = 1") == []
