from __future__ import annotations

import errno
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.index.tree.conftest import LEAST, D, Halt, Room, wait_until
from tests.support.few_rows import structures_from
from tests.support.items import SPACE, new_item
from twinlens.index.errors import CollectionError, CollectionNotFound, InvalidArgument
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.segment import write_segment
from twinlens.index.stored_vectors import stream_vectors
from twinlens.index.tree import catch_up, merge, open_trees, policy
from twinlens.index.tree.source import of_keys


def until_merged(room: Room) -> None:
    """Waits for merges of the background that are due by asking for one behind them."""
    room.collection.merge()


def test_enough_vectors_are_merged_by_themselves_and_few_are_not(room: Room) -> None:
    room.upsert(*range(LEAST - 1))
    assert room.numbers() == (0, LEAST - 1, 0)
    assert room.segments == []
    room.upsert(LEAST)
    wait_until(lambda: room.numbers() == (LEAST, 0, 0))
    assert len(room.segments) == 1
    room.check()


def test_any_mix_of_merged_fresh_and_hidden_vectors_is_searched_as_brute_force_would(room: Room) -> None:
    room.upsert(*range(60))
    room.collection.merge()
    room.upsert(3, 4, 100, 101)
    room.delete(5, 6, 100)
    room.check()
    assert room.numbers() == (60, 3, 4)
    room.reopen()
    room.check()
    assert room.numbers() == (60, 3, 4)
    room.collection.merge()
    room.check()
    assert room.numbers() == (59, 0, 0)
    assert len(room.segments) == 1


def test_searches_and_writes_go_on_while_a_merge_runs_and_nothing_of_it_is_lost(room: Room, halt: Halt) -> None:
    room.upsert(*range(LEAST))
    assert halt.reached.wait(30)
    room.check()
    room.upsert(1, 2, 50, 51)
    room.delete(3, 50)
    room.check()
    halt.go_on.set()
    until_merged(room)
    room.check()
    assert room.numbers() == (len(room.model), 0, 0)
    room.reopen()
    room.check()


def test_much_written_while_a_merge_runs_is_caught_up_with(
    room: Room, halt: Halt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_FEW", 0)
    monkeypatch.setattr(catch_up, "_AT_ONCE", 7)
    room.upsert(*range(40))
    assert halt.reached.wait(30)
    room.delete(*range(0, 40, 2))
    room.upsert(*range(30, 60))
    halt.go_on.set()
    until_merged(room)
    room.check()


def test_a_restart_reads_only_what_changed_since_the_merge(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.upsert(*range(60))
    room.collection.merge()
    room.upsert(1, 2)
    read: list[int] = []

    def counted(*given: Any) -> Any:
        read.extend(given[3])
        return of_keys(*given)

    monkeypatch.setattr(catch_up, "of_keys", counted)

    def streamed(*given: Any) -> Any:
        assert given[4] == [Modality.TEXT]  # which has no segment
        return stream_vectors(*given)

    monkeypatch.setattr(open_trees, "stream_vectors", streamed)
    room.reopen()
    assert len(read) == 2
    room.check()


def test_changes_are_logged_only_while_a_segment_needs_them(room: Room) -> None:
    room.upsert(*range(10))
    room.delete(1)
    assert room.logged == 0
    room.collection.merge()
    room.upsert(2, 3)
    room.delete(4)
    assert room.logged == 3
    room.collection.merge()
    assert room.logged == 0


def test_filling_another_generation_is_not_logged(room: Room) -> None:
    room.upsert(*range(10))
    room.collection.merge()
    generation = room.collection.begin_generation(space_id="other", dimension=4)
    items = room.collection.missing(generation, limit=100)
    room.collection.write_vectors(generation, {item.id: {} for item in items})
    assert room.logged == 0


def test_a_collection_with_most_items_deleted_is_unmerged_again(room: Room) -> None:
    room.upsert(*range(60))
    room.collection.merge()
    room.delete(*range(5, 60))
    wait_until(lambda: room.numbers() == (0, 5, 0) and not room.segments)
    room.check()
    assert room.rows("SELECT * FROM segments") == []
    room.delete(*range(5))
    room.check()
    room.reopen()
    room.check()


def test_merging_nothing_makes_nothing(room: Room) -> None:
    room.collection.merge()
    assert room.segments == []
    room.upsert(1)
    room.delete(1)
    room.collection.merge()
    assert room.segments == []
    room.check()


def test_the_kind_can_be_changed_while_serving_and_is_kept(room: Room) -> None:
    with structures_from(32):
        room.upsert(*range(200))
        for kind in (Kind.HNSW, Kind.IVF_FLAT, Kind.FLAT):
            room.collection.merge(kind=kind)
            assert room.collection.stats().indexes[0].kind is kind
            assert room.reopen().kind is kind
            assert room.collection.stats().indexes[0].kind is kind
            assert len(room.segments) == 1
            room.collection.merge()


def test_a_kind_that_does_not_exist_is_refused(room: Room) -> None:
    with pytest.raises(InvalidArgument, match="index kind 'tree': it must be one of auto, flat"):
        room.collection.merge(kind="tree")  # type: ignore[arg-type]


def test_a_kind_asked_for_before_a_crash_is_built_after_it(room: Room, halt: Halt) -> None:
    with structures_from(32):
        room.upsert(*range(50))
        halt.go_on.set()
        room.collection.merge(kind=Kind.FLAT)
        halt.go_on.clear()
        halt.reached.clear()
        room.collection.merge(kind=Kind.HNSW, wait=False)
        assert halt.reached.wait(30)
        room.reopen()
        halt.go_on.set()
        wait_until(lambda: room.collection.stats().indexes[0].kind is Kind.HNSW)


def test_a_merge_that_fails_leaves_everything_as_it_was_and_is_told(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.upsert(*range(30))
    room.collection.merge()
    room.upsert(1, 2)
    before = room.numbers(), room.segments
    with monkeypatch.context() as patched:

        def full(*_given: object, **_options: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patched.setattr(merge, "write_segment", full)
        with pytest.raises(CollectionError, match=r"^collection photos: .*No space left on device"):
            room.collection.merge()
    assert (room.numbers(), room.segments) == before
    room.check()
    assert "No space left" in room.collection.stats().indexes[0].last_merge.error
    room.collection.merge()
    assert room.collection.stats().indexes[0].last_merge.error == ""
    assert room.collection.stats().indexes[0].last_merge.ended_s is not None
    room.check()


def test_a_segment_that_cannot_be_read_back_never_counts(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.upsert(*range(10))

    def lost(folder: Any, *given: Any, **options: Any) -> None:
        write_segment(folder, *given, **options)
        shutil.rmtree(folder)

    monkeypatch.setattr(merge, "write_segment", lost)
    with pytest.raises(CollectionError, match="cannot be read back"):
        room.collection.merge()
    assert room.rows("SELECT * FROM segments") == []
    room.check()


def test_closing_stops_a_merge_and_whoever_waits_for_it_is_told(room: Room, halt: Halt) -> None:
    room.upsert(*range(10))
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(room.collection.merge)
        assert halt.reached.wait(30)
        waiting = pool.submit(room.collection.merge)
        wait_until(lambda: bool(room.collection._state.merges._requests))
        room.catalog.close()
        with pytest.raises(CollectionError, match="merging was stopped"):
            running.result(30)
        with pytest.raises(CollectionNotFound, match="no longer open"):
            waiting.result(30)
    with pytest.raises(CollectionNotFound):
        room.collection.merge()
    room.reopen()
    room.check()
    assert room.segments == []


def test_a_copy_of_the_database_made_while_merging_names_no_segment_that_knows_more(room: Room, halt: Halt) -> None:
    room.upsert(*range(30))
    assert halt.reached.wait(30)
    copied = {token for (token,) in room.rows("SELECT token FROM segments")}
    halt.go_on.set()
    until_merged(room)
    assert copied
    assert not copied & {folder.name for folder in halt.folders}


def test_a_merge_that_failed_in_the_background_is_tried_again_by_itself(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def full_at_first(*given: Any, **options: Any) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_segment(*given, **options)

    monkeypatch.setattr(policy, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(merge, "write_segment", full_at_first)
    room.upsert(*range(LEAST))
    wait_until(lambda: room.numbers() == (LEAST, 0, 0))
    assert len(attempts) == 3
    assert room.collection.stats().indexes[0].last_merge.error == ""
    room.check()


def test_a_merge_that_failed_is_not_tried_again_at_once(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    merges = room.collection._state.merges
    with monkeypatch.context() as patched:
        patched.setattr(policy, "FIRST_RETRY_S", 1000.0)
        patched.setattr(policy, "LAST_RETRY_S", 1000.0)
        patched.setattr(merge, "write_segment", full)
        room.upsert(*range(LEAST))
        with pytest.raises(CollectionError, match="No space left"):
            room.collection.merge()
        wait = merges.wait_s(time.monotonic())
        assert wait is not None
        assert 900 < wait <= 1000
    room.collection.merge()
    assert merges.wait_s(time.monotonic()) is None
    room.upsert(*range(LEAST))
    wait_until(lambda: room.numbers() == (LEAST, 0, 0))


def test_a_modality_that_cannot_be_merged_keeps_no_other_from_it(room: Room) -> None:
    vectors = np.random.default_rng(5).standard_normal((LEAST - 1, 2, D))
    items = [new_item(f"{i}", image_vector=v[0], text_vector=v[1]) for i, v in enumerate(vectors)]
    room.collection.upsert(items, space_id=SPACE)
    with room.collection._state.writing, room.collection._state.database.write() as connection:
        connection.execute("UPDATE vectors SET vector = zeroblob(36) WHERE item = 3 AND modality = 'image'")
    with pytest.raises(CollectionError, match=r"merging failed .*vector of item number 3 is damaged"):
        room.collection.merge()
    images, texts = room.collection.stats().indexes
    assert (images.merged, images.pending, texts.merged, texts.pending) == (0, LEAST - 1, LEAST - 1, 0)
    assert "item number 3" in images.last_merge.error
    assert texts.last_merge.error == ""
    more = np.random.default_rng(6).standard_normal((LEAST, D))
    room.collection.upsert([new_item(f"more {i}", text_vector=v) for i, v in enumerate(more)], space_id=SPACE)
    wait_until(lambda: room.collection.stats().indexes[1].merged == 2 * LEAST - 1)
    room.collection.upsert([items[2]], space_id=SPACE)
    room.collection.merge()
    assert [index.pending for index in room.collection.stats().indexes] == [0, 0]
