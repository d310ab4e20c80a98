"""Deleting items by filter."""

from __future__ import annotations

import sqlite3

import pytest

from tests.support.filtered_search import fill, search
from tests.support.items import SPACE, new_item
from twinlens.index import store
from twinlens.index.collection import Collection
from twinlens.index.errors import InvalidArgument
from twinlens.index.filters.conditions import Sql
from twinlens.index.protocol import Keys


def test_matches_are_deleted_with_their_vectors_and_pictures(collection: Collection) -> None:
    fill(collection)
    collection.upsert([new_item("picture", image=b"bytes", metadata={"n": -1})], space_id=SPACE)
    pictures = collection._state.folder / "blobs"
    assert [path.read_bytes() for path in pictures.rglob("*") if path.is_file()] == [b"bytes"]
    assert collection.delete(filter="odd = true OR n = -1") == 21
    assert not [path for path in pictures.rglob("*") if path.is_file()]
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


def test_what_comes_to_match_or_matches_no_more_while_others_are_deleted_stays(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.index.filters.filtering._DELETED_AT_ONCE", 3)
    fill(collection, 10)
    real = collection._filtering._delete_some

    def write_then_delete(where: Sql, keys: Keys) -> int:
        collection.upsert([new_item("007", metadata={"n": -1}), new_item("late", metadata={"n": 8})], space_id=SPACE)
        return real(where, keys)

    monkeypatch.setattr(collection._filtering, "_delete_some", write_then_delete)
    assert collection.delete(filter="n >= 4") == 5
    assert [item.id for item in collection.list()] == ["000", "001", "002", "003", "007", "late"]


def test_other_writes_wait_only_for_the_deletion_of_some_not_for_the_search_of_all(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection)
    plans = []
    real = store.rows_where

    def planned(connection: sqlite3.Connection, where: Sql, keys: Keys) -> list[store.Row]:
        plans.append(keys.tolist())
        return real(connection, where, keys)

    monkeypatch.setattr(store, "rows_where", planned)
    assert collection.delete(filter="n = 3 OR n = 33") == 2
    assert plans == [[4, 34]]


def test_a_blank_filter_deletes_nothing_and_ids_go_without_one(collection: Collection) -> None:
    fill(collection, 2)
    with pytest.raises(InvalidArgument, match="blank"):
        collection.delete(filter="  ")
    with pytest.raises(InvalidArgument, match="not by both"):
        collection.delete(["000"], filter="n = 1")
    assert collection.delete([]) == 0
    assert collection.count() == 2


def test_deleting_what_is_not_there_leaves_nothing_to_be_remembered(collection: Collection) -> None:
    fill(collection, 2)
    before, logged = collection.version, len(collection._state.matching._log)
    assert collection.delete(["never there"]) == 0
    assert collection.delete(filter="n = 9") == 0
    assert collection.version == before
    assert len(collection._state.matching._log) == logged
