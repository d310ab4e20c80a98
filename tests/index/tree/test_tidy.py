from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

from tests.index.tree.conftest import Room


def test_a_segment_that_is_gone_is_forgotten_and_so_are_the_changes_kept_for_it(room: Room) -> None:
    room.upsert(*range(10))
    room.collection.merge()
    room.upsert(1, 2)
    assert room.logged == 2
    room.catalog.close()
    shutil.rmtree(room.root / "collections" / "photos" / "indexes" / room.segments[0])
    room.reopen()
    room.check()
    assert room.rows("SELECT * FROM segments") == []
    assert room.logged == 0
    room.upsert(3)
    assert room.logged == 0


def test_segments_of_a_generation_that_never_became_active_are_forgotten(room: Room) -> None:
    room.upsert(*range(10))
    room.collection.merge()
    room.collection.begin_generation(space_id="other", dimension=4)
    room.upsert(1, 2)
    room.catalog.close()
    (used,) = room.segments
    folder = room.root / "collections" / "photos"
    shutil.copytree(folder / "indexes" / used, folder / "indexes" / "unfinished")
    (folder / "indexes" / ".unfinished.new").mkdir()
    with closing(sqlite3.connect(folder / "collection.db")) as connection:
        connection.execute("INSERT INTO segments VALUES (2, 'image', 'unfinished', 0)")
        connection.commit()
    room.reopen()
    room.check()
    assert room.segments == [used]
    assert room.rows("SELECT generation, token FROM segments") == [(1, used)]
    room.collection.merge()
    assert room.logged == 0
