"""What was acknowledged survives a kill, and nothing is ever half there."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support import write_until_killed as writer
from tests.support.kills import AIMS, assert_whole, kill_rounds, log
from twinlens.index.catalog import Catalog


@pytest.mark.parametrize("rounds", [len(AIMS) // 2, pytest.param(50, marks=pytest.mark.slow)])
def test_every_acknowledged_write_survives_kills_at_any_moment(tmp_path: Path, rounds: int) -> None:
    kills = list(kill_rounds(tmp_path, rounds, seed=rounds))
    assert len(kills) == rounds
    sys.stdout.write(f"\n{log(kills)}\n")


def test_a_filling_that_was_killed_goes_on_and_ends_whole(tmp_path: Path) -> None:
    model = {f"item-{i}": i for i in range(100)}
    with closing(Catalog(tmp_path)) as catalog:
        collection = catalog.create("photos", space_id="space-a", dimension=16)
        writer.perform(collection, {"kind": "upsert", "items": list(model.items())}, model)
        writer.perform(collection, {"kind": "fill", "space_id": "space-b"}, model)
    with closing(Catalog(tmp_path)) as catalog:
        collection = catalog.get("photos")
        generation = collection.begin_generation(space_id="space-b", dimension=24)
        assert len(collection.missing(generation, limit=1000)) == 100 - 48
        writer.perform(collection, {"kind": "activate", "space_id": "space-b"}, model)
        assert_whole(collection, tmp_path, (model, "space-b"), np.random.default_rng(0))


def test_pictures_that_a_crash_left_without_an_item_are_cleared(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create("photos", space_id="space-a", dimension=16)
    catalog.close()
    folder = tmp_path / "collections" / "photos"
    orphan = folder / "blobs" / "ab" / "cd" / "abcdef"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"orphan")
    (orphan.parent / ".writing-1").write_bytes(b"half")
    (folder / "collection.db-wal").touch()  # what an unclean end leaves
    catalog = Catalog(tmp_path)
    catalog.get("photos")
    assert not [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    catalog.close()
