"""Indexes on paths into metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.filtered_search import fill, search
from tests.support.items import DIMENSION, SPACE, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CorruptCollection, InvalidArgument


def test_an_index_on_a_path_is_made_used_and_removed(collection: Collection) -> None:
    fill(collection, 200)
    before = search(collection, "n = 17")
    assert collection.add_metadata_index("metadata.n") == "n"
    assert collection.add_metadata_index("n") == "n"
    assert collection.add_metadata_index('camera."focal length"') == 'camera."focal length"'
    assert collection.add_metadata_index("metadata.id") == "metadata.id"
    assert collection.add_metadata_index("metadata.metadata.n") == "metadata.metadata.n"
    collection.remove_metadata_index("metadata.metadata.n")
    assert collection.metadata_indexes() == ['camera."focal length"', "metadata.id", "n"]
    with collection._state.database.read() as connection:
        where = collection._filtering._indexed(connection, "n = 17")
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT key FROM items WHERE {where.text}", where.parameters)  # noqa: S608
        assert any("USING" in row[3] and "INDEX items_by_metadata_" in row[3] for row in plan)
    collection.upsert([new_item("one more", metadata={"n": 17})], space_id=SPACE)
    assert sorted(search(collection, "n = 17")) == sorted([*before, "one more"])
    assert collection.count("n = 17") == 2
    collection.remove_metadata_index("n")
    assert collection.metadata_indexes() == ['camera."focal length"', "metadata.id"]
    assert collection.count("n = 17") == 2


def test_indexes_are_there_after_opening_again(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    fill(collection, 5)
    collection.add_metadata_index("n")
    catalog.close()
    catalog = Catalog(tmp_path)
    collection = catalog.get("photos")
    assert collection.metadata_indexes() == ["n"]
    assert collection.count("n = 3") == 1
    catalog.close()


@pytest.mark.parametrize(
    "path", ["", "id", "metadata", "a = 1", "a:b", "a OR b", "NOT a", "a b", "a;b", '"a\\"b"', "a\0"]
)
def test_what_is_no_path_into_metadata_gets_no_index(collection: Collection, path: str) -> None:
    with pytest.raises(InvalidArgument, match="path"):
        collection.add_metadata_index(path)
    assert collection.metadata_indexes() == []


def test_indexes_are_limited_and_unknown_ones_named(collection: Collection) -> None:
    for i in range(16):
        collection.add_metadata_index(f"p{i:02}")
    with pytest.raises(InvalidArgument, match="at most 16"):
        collection.add_metadata_index("one_more")
    with pytest.raises(InvalidArgument, match="no metadata index on 'one_more'; there are: p00, p01"):
        collection.remove_metadata_index("one_more")


def test_a_damaged_list_of_indexes_is_reported(collection: Collection) -> None:
    with collection._state.database.write() as connection:
        connection.execute("INSERT INTO metadata_indexes (path) VALUES ('x = 1 OR')")
    with pytest.raises(CorruptCollection, match="list of metadata indexes is damaged"):
        collection.count("n = 1")
