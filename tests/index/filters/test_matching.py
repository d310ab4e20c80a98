"""Which items match is remembered, and never behind."""

from __future__ import annotations

import sqlite3
import threading

import numpy as np
import pytest

from tests.support.filtered_search import fill, search
from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.collection import Collection
from twinlens.index.filters import metadata_indexes
from twinlens.index.filters.matching import _LOGGED, Matching
from twinlens.index.item import Modality
from twinlens.index.protocol import Keys


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


def test_an_answer_from_before_what_is_logged_is_not_brought_up_to_date_but_made_anew(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.index.filters.matching._LOGGED", 2)
    fill(collection, 4)
    assert sorted(search(collection, "odd = true")) == ["001", "003"]
    for late in ("late 1", "late 2", "late 3"):
        collection.upsert([new_item(late, metadata={"odd": True})], space_id=SPACE)
    assert sorted(search(collection, "odd = true")) == ["001", "003", "late 1", "late 2", "late 3"]


def test_the_filters_used_last_are_remembered(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.index.filters.matching._REMEMBERED", 2)
    fill(collection, 4)
    for text in ("n = 1", "n = 2", "n = 1", "n = 3"):
        search(collection, text)
    answers = collection._state.matching._answers.values()
    assert [answer.keys.tolist() for answer in answers] == [[2], [4]]


def test_a_hit_that_stops_matching_while_it_is_searched_is_none(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection, 4)
    real = collection._filtering.among

    def matching_then_changed(text: str) -> Keys | None:
        keys = real(text)
        collection.upsert([new_item("001", metadata={"odd": False})], space_id=SPACE)
        return keys

    monkeypatch.setattr(collection._filtering, "among", matching_then_changed)
    assert search(collection, "odd = true") == ["003"]


def test_only_searches_of_all_and_with_the_index_tell_how_well_it_finds(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection, 4)
    noticed: list[Modality] = []
    monkeypatch.setattr(collection._state.audit, "notice", lambda modality, _: noticed.append(modality))
    query = axis(0)[np.newaxis]
    for options in ({"filter": "odd = true"}, {"exact": True}, {"filter": " "}, {}):
        collection.search(query, modality=Modality.IMAGE, top_k=1, space_id=SPACE, **options)
    assert noticed == [Modality.IMAGE] * 2


def test_an_answer_that_is_too_large_to_be_remembered_pushes_out_no_other(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(collection)
    search(collection, "n = 1")
    monkeypatch.setattr("twinlens.index.filters.matching._REMEMBERED_BYTES", 10 * 8)
    assert len(search(collection, "odd = true")) == 20
    assert [answer.keys.tolist() for answer in collection._state.matching._answers.values()] == [[2]]
