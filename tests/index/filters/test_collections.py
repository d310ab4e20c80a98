"""Collections searched, listed, counted and emptied by filter."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionNotFound, CorruptCollection, InvalidArgument
from twinlens.index.filters import metadata_indexes
from twinlens.index.filters.errors import InvalidFilter
from twinlens.index.filters.matching import _LOGGED, Matching
from twinlens.index.item import Modality, NewItem


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """With the usual engine only: filters are the database's work; test_recall.py has the other engines."""
    opened = Catalog(tmp_path / "data")
    yield opened
    opened.close()


def fill(collection: Collection, count: int = 40) -> None:
    rng = np.random.default_rng(6)
    collection.upsert(
        [
            new_item(f"{i:03}", image_vector=rng.normal(size=DIMENSION), metadata={"n": i, "odd": i % 2 == 1})
            for i in range(count)
        ],
        space_id=SPACE,
    )


def search(collection: Collection, text: str, top_k: int = 100) -> list[str]:
    (hits,) = collection.search(axis(0)[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE, filter=text)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.item.id for hit in hits]


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


def test_matches_are_deleted_with_their_vectors_and_pictures(collection: Collection) -> None:
    fill(collection)
    collection.upsert([new_item("picture", image=b"bytes", metadata={"n": -1})], space_id=SPACE)
    assert collection.delete(filter="odd = true OR n = -1") == 21
    assert collection.count() == 20
    assert len(search(collection, "")) == 20
    assert collection.stats().image_vectors == 20
    assert collection.delete(filter="odd = true") == 0


def test_many_matches_are_deleted_in_turns_with_other_writes(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.index.filters.filtering._DELETED_AT_ONCE", 3)
    fill(collection)
    assert collection.delete(filter="n >= 7") == 33
    assert [item.id for item in collection.list()] == [f"{i:03}" for i in range(7)]


def test_a_blank_filter_deletes_nothing_and_ids_go_without_one(collection: Collection) -> None:
    fill(collection, 2)
    with pytest.raises(InvalidArgument, match="blank"):
        collection.delete(filter="  ")
    with pytest.raises(InvalidArgument, match="not by both"):
        collection.delete(["000"], filter="n = 1")
    assert collection.delete([]) == 0
    assert collection.count() == 2


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


def test_a_search_by_filter_sees_every_write_that_returned(collection: Collection) -> None:
    rng = np.random.default_rng(3)
    model: dict[str, int] = {}
    for _ in range(60):
        item_id = f"{rng.integers(12)}"
        if rng.random() < 0.3:
            collection.delete([item_id])
            model.pop(item_id, None)
        else:
            value = int(rng.integers(3))
            collection.upsert([new_item(item_id, metadata={"n": value})], space_id=SPACE)
            model[item_id] = value
        for value in range(3):
            assert set(search(collection, f"n = {value}")) == {each for each, n in model.items() if n == value}


def test_hits_match_while_items_change(collection: Collection) -> None:
    fill(collection, 60)
    rng = np.random.default_rng(4)
    done = threading.Event()
    failures: list[object] = []

    def look() -> None:
        while not done.is_set():
            (hits,) = collection.search(
                axis(0)[np.newaxis], modality=Modality.IMAGE, top_k=10, space_id=SPACE, filter="odd = true"
            )
            failures.extend(hit for hit in hits if hit.item.metadata["odd"] is not True)
            if len(hits) != 10:
                failures.append(len(hits))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(80):
            i = int(rng.integers(60))
            odd = i % 2 == 1 if i < 40 else bool(rng.random() < 0.5)
            collection.upsert(
                [new_item(f"{i:03}", image_vector=rng.normal(size=DIMENSION), metadata={"n": i, "odd": odd})],
                space_id=SPACE,
            )
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_write_between_the_steps_of_a_search_is_found_by_the_next(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection, 4)
    search(collection, "odd = true")
    real, writes = metadata_indexes.listed, iter(["late 1", "late 2", "late 3"])

    def listed_and_written_to(connection: sqlite3.Connection) -> dict[tuple[str, ...], str]:
        found = real(connection)  # from here on, this connection sees what there was at this moment
        if (late := next(writes, None)) is not None:
            collection.upsert([new_item(late, metadata={"odd": True})], space_id=SPACE)
        return found

    monkeypatch.setattr(metadata_indexes, "listed", listed_and_written_to)
    for text in ("odd = true", "odd = true", "n != 7 OR odd = true"):
        search(collection, text)
    assert sorted(search(collection, "odd = true")) == ["001", "003", "late 1", "late 2", "late 3"]
    assert len(search(collection, "n != 7 OR odd = true")) == 7


def test_answers_are_remembered_and_only_changed_items_are_asked_about(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection)
    scans: list[str] = []
    scan = "twinlens.index.filters.matching._matching"
    real = __import__("twinlens.index.filters.matching", fromlist=["_matching"])._matching

    def counted(connection: object, where: object) -> object:
        scans.append(getattr(where, "text", ""))
        return real(connection, where)

    monkeypatch.setattr(scan, counted)
    search(collection, "odd = true")
    search(collection, "odd = true")
    assert len(scans) == 1
    collection.upsert([new_item("new", metadata={"odd": True})], space_id=SPACE)
    assert "new" in search(collection, "odd = true")
    assert len(scans) == 2
    assert scans[1].startswith("key IN")


def test_who_is_too_far_behind_asks_about_every_item_again() -> None:
    matching = Matching()
    matching.note(range(10))
    for _ in range(4):
        matching.note(range(_LOGGED // 2))
    assert matching._known_from > 0
    assert matching._logged <= _LOGGED


def test_an_answer_that_is_too_large_to_be_remembered_pushes_out_no_other(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection)
    search(collection, "n = 1")
    monkeypatch.setattr("twinlens.index.filters.matching._REMEMBERED_BYTES", 10 * 8)
    assert len(search(collection, "odd = true")) == 20
    assert [answer.keys.tolist() for answer in collection._state.matching._answers.values()] == [[2]]


def test_deleting_what_is_not_there_leaves_nothing_to_be_remembered(collection: Collection) -> None:
    fill(collection, 2)
    before, logged = collection.version, len(collection._state.matching._log)
    assert collection.delete(["never there"]) == 0
    assert collection.delete(filter="n = 9") == 0
    assert collection.version == before
    assert len(collection._state.matching._log) == logged


def test_an_index_on_a_path_is_made_used_and_removed(collection: Collection) -> None:
    fill(collection, 200)
    before = search(collection, "n = 17")
    assert collection.add_metadata_index("metadata.n") == "n"
    assert collection.add_metadata_index("n") == "n"
    assert collection.add_metadata_index('camera."focal length"') == 'camera."focal length"'
    assert collection.add_metadata_index("metadata.id") == "metadata.id"
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


def test_a_filter_on_a_closed_collection_says_so(catalog: Catalog, collection: Collection) -> None:
    catalog.delete("photos")
    with pytest.raises(CollectionNotFound):
        collection.count("n = 1")


def test_items_without_vectors_match_lists_but_are_no_hits(collection: Collection) -> None:
    collection.upsert([NewItem("bare", {}, caption="x", metadata={"n": 1})], space_id=SPACE)
    assert [item.id for item in collection.list(filter="n = 1")] == ["bare"]
    assert search(collection, "n = 1") == []
