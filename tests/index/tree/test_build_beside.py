from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.index.tree.conftest import D, Halt, Room, wait_until
from tests.support.items import SPACE
from tests.support.oracle import assert_exact
from twinlens.index import generations, load
from twinlens.index.errors import CollectionError, InvalidArgument
from twinlens.index.generations import LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.tree import open_beside

NEW = "space-two"


def filled(room: Room) -> int:
    """A generation of other vectors, complete."""
    generation = room.collection.begin_generation(space_id=NEW, dimension=D)
    ids = [item.id for item in room.collection.missing(generation, limit=1000)]
    room.collection.write_vectors(generation, {item_id: {Modality.IMAGE: other(item_id)} for item_id in ids})
    return generation


def other(item_id: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(int(item_id)).standard_normal(D).astype(np.float32)


def check_new(room: Room) -> None:
    query = np.ones(D)
    hits = room.collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=7, space_id=NEW)[0]
    assert_exact(query, {item_id: other(item_id) for item_id in room.model}, 7, [(h.item.id, h.score) for h in hits])


@pytest.fixture
def merged(room: Room, halt: Halt) -> Room:
    halt.go_on.set()
    room.upsert(*range(40))
    room.collection.merge()
    halt.go_on.clear()
    halt.reached.clear()
    return room


def test_a_generation_has_its_segments_when_it_becomes_the_active_one(merged: Room, halt: Halt) -> None:
    before = merged.segments
    halt.go_on.set()
    generation = filled(merged)
    merged.collection.activate(generation)
    assert merged.numbers() == (40, 0, 0)
    assert [number for (number,) in merged.rows("SELECT generation FROM segments")] == [generation]
    assert len(merged.segments) == 1
    assert merged.segments != before
    check_new(merged)
    merged.reopen()
    assert merged.numbers() == (40, 0, 0)
    check_new(merged)


def test_searches_and_writes_go_on_while_the_segments_of_a_generation_are_built(merged: Room, halt: Halt) -> None:
    generation = filled(merged)
    with ThreadPoolExecutor(1) as pool:
        activating = pool.submit(merged.collection.activate, generation)
        assert halt.reached.wait(30)
        merged.check()
        merged.delete(1, 2)  # nothing is missing for that
        merged.check()
        assert merged.collection.space_id == SPACE
        halt.go_on.set()
        activating.result(30)
    check_new(merged)
    merged.reopen()
    check_new(merged)


def test_items_stored_meanwhile_keep_a_generation_from_becoming_active_and_nothing_stays(
    merged: Room, halt: Halt
) -> None:
    generation, before = filled(merged), merged.segments
    with ThreadPoolExecutor(1) as pool:
        activating = pool.submit(merged.collection.activate, generation)
        assert halt.reached.wait(30)
        merged.upsert(100)
        halt.go_on.set()
        with pytest.raises(InvalidArgument, match="still misses 1 items"):
            activating.result(30)
    merged.check()
    assert merged.segments == before
    assert len(merged.rows("SELECT * FROM segments")) == 1
    merged.collection.write_vectors(generation, {"100": {Modality.IMAGE: other("100")}})
    merged.collection.activate(generation)
    check_new(merged)


def test_writers_wait_neither_for_the_segments_to_be_opened_nor_for_items_to_be_counted(
    merged: Room, halt: Halt, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = filled(merged)
    halt.go_on.set()
    merged.collection.merge()
    real = load.load_generation
    state = merged.collection._state

    def write_then_load(*given: Any, **options: Any) -> LoadedGeneration:
        assert not state.writing.locked()
        loaded = real(*given, **options)
        for numbers in ((1, 2, 200), (3,)):
            merged.upsert(*numbers)
            ids = [f"{number}" for number in numbers]
            merged.collection.write_vectors(generation, {item_id: {Modality.IMAGE: other(item_id)} for item_id in ids})
        merged.delete(4)
        return loaded

    counted: list[int | None] = []
    real_count = generations.count_missing

    def count(connection: sqlite3.Connection, number: int, keys: Sequence[int] | None = None) -> int:
        if state.writing.locked():
            counted.append(None if keys is None else len(keys))
        return real_count(connection, number, keys)

    monkeypatch.setattr(open_beside, "load_generation", write_then_load)
    monkeypatch.setattr(generations, "count_missing", count)
    merged.collection.activate(generation)
    check_new(merged)
    assert counted == [0], "all changes were caught up with before"
    merged.reopen()
    check_new(merged)


@pytest.mark.parametrize("filled_in", [True, False])
def test_what_is_written_last_before_a_generation_becomes_active_is_in_it(
    merged: Room, halt: Halt, monkeypatch: pytest.MonkeyPatch, filled_in: bool
) -> None:
    generation, before = filled(merged), merged.segments
    halt.go_on.set()
    real = open_beside.OpenedBeside.catch_up

    def catch_up_then_write(opened: open_beside.OpenedBeside) -> None:
        real(opened)
        merged.upsert(5, 300)
        merged.delete(6)
        for item_id in ("5", "300") if filled_in else ("5",):
            merged.collection.write_vectors(generation, {item_id: {Modality.IMAGE: other(item_id)}})

    closed: list[str] = []
    monkeypatch.setattr(open_beside.OpenedBeside, "catch_up", catch_up_then_write)
    monkeypatch.setattr(open_beside.OpenedBeside, "close", lambda _: closed.append("closed"))
    if filled_in:
        merged.collection.activate(generation)
        check_new(merged)
        merged.reopen()
        check_new(merged)
        assert closed == []
    else:
        with pytest.raises(InvalidArgument, match="still misses 1 items"):
            merged.collection.activate(generation)
        merged.check()
        assert merged.segments == before
        assert closed == ["closed"]


@pytest.mark.parametrize("count", [10, 40])
def test_vectors_written_again_before_a_generation_becomes_active_are_in_it(
    room: Room, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    room.upsert(*range(count))  # ten get no segment, and then changes are not logged
    generation = filled(room)
    real = open_beside.OpenedBeside.catch_up

    def catch_up_then_write(opened: open_beside.OpenedBeside) -> None:
        real(opened)
        room.collection.write_vectors(generation, {"7": {Modality.IMAGE: np.ones(D)}})

    monkeypatch.setattr(open_beside.OpenedBeside, "catch_up", catch_up_then_write)
    room.collection.activate(generation)
    for _ in range(2):
        hits = room.collection.search(np.ones((1, D)), modality=Modality.IMAGE, top_k=1, space_id=NEW)[0]
        assert [hit.item.id for hit in hits] == ["7"]
        assert hits[0].score == pytest.approx(1)
        room.reopen()


def test_closing_stops_the_building(merged: Room, halt: Halt) -> None:
    generation = filled(merged)
    with ThreadPoolExecutor(1) as pool:
        activating = pool.submit(merged.collection.activate, generation)
        assert halt.reached.wait(30)
        merged.catalog.close()
        with pytest.raises(CollectionError):
            activating.result(30)
    merged.reopen()
    merged.check()


def test_activating_twice_at_once_builds_once(merged: Room, halt: Halt) -> None:
    generation = filled(merged)
    built = len(halt.folders)
    halt.go_on.set()
    start = threading.Barrier(2)

    def activate() -> None:
        start.wait()
        merged.collection.activate(generation)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(activate), pool.submit(activate)]:
            done.result(30)
    assert len(halt.folders) == built + 1
    check_new(merged)


def test_a_merge_of_the_generation_before_gives_way(merged: Room, halt: Halt) -> None:
    generation = filled(merged)
    folders = len(halt.folders)
    merged.upsert(*range(35))  # which may begin a merge by itself
    merged.collection.write_vectors(
        generation, {f"{number}": {Modality.IMAGE: other(f"{number}")} for number in range(35)}
    )
    with ThreadPoolExecutor(2) as pool:
        merging = pool.submit(merged.collection.merge)
        assert halt.reached.wait(30)
        activating = pool.submit(merged.collection.activate, generation)
        wait_until(lambda: len(halt.folders) == folders + 2)
        halt.go_on.set()
        activating.result(30)
        stopped = merging.exception(30)
    assert stopped is None or "another generation became active" in str(stopped)
    check_new(merged)
    assert len(merged.segments) == 1
    merged.collection.merge()
    check_new(merged)
