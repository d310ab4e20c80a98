"""Operations that run out of room: one clear error, nothing half done, and all goes on once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import SPACE, new_item
from tests.support.small_disk import SmallDisk, small_disk
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionError, CollectionNotFound, PlaceUnavailable
from twinlens.index.item import Modality
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.steps import Backup, DuplicateGroup

FULL = "disk is full|no space left on device|the disk reports an error"
D = 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=8) as mounted:
        yield mounted


def filled(catalog: Catalog) -> Collection:
    collection = catalog.create("photos", space_id=SPACE, dimension=D)
    rng = np.random.default_rng(0)
    items = [new_item(f"{i}", image_vector=rng.standard_normal(D), image=rng.bytes(3000)) for i in range(150)]
    collection.upsert([*items, new_item("twin", image_vector=items[7].vectors[Modality.IMAGE])], space_id=SPACE)
    return collection


@pytest.mark.parametrize("keep_bytes", [0, 2**18])
def test_a_backup_for_which_there_is_no_room_is_none(catalog: Catalog, disk: SmallDisk, keep_bytes: int) -> None:
    collection, place = filled(catalog), str(disk.root / "backups")
    disk.fill(keep_bytes=keep_bytes)
    with pytest.raises(CollectionError, match=FULL):
        list(collection.backup(place, backup="one"))
    assert list_backups(place) == []
    disk.make_room()
    assert isinstance(list(collection.backup(place, backup="one"))[-1], Backup)


@pytest.mark.parametrize("keep_bytes", [0, 2**18])
def test_a_restoration_for_which_there_is_no_room_leaves_nothing(
    catalog: Catalog, disk: SmallDisk, tmp_path: Path, keep_bytes: int
) -> None:
    place = str(tmp_path / "backups")
    list(filled(catalog).backup(place, backup="one"))
    full = Catalog(disk.root / "data")
    disk.fill(keep_bytes=keep_bytes)
    with pytest.raises(CollectionError, match=FULL) as failed:
        list(full.restore(place, "one"))
    assert not isinstance(failed.value, PlaceUnavailable)
    assert "collection photos" in str(failed.value)
    with pytest.raises(CollectionNotFound):
        full.get("photos")
    assert list((disk.root / "data/collections").iterdir()) == []
    disk.make_room()
    *_, restored = full.restore(place, "one")
    assert isinstance(restored, Collection)
    assert restored.stats().items == 151
    full.close()


def test_duplicates_for_which_there_is_no_room_are_refused(disk: SmallDisk) -> None:
    catalog = Catalog(disk.root / "data")
    collection = filled(catalog)
    disk.fill()
    with pytest.raises(CollectionError, match=f"temporary file of its vectors: {FULL}"):
        list(collection.duplicates(Modality.IMAGE))
    disk.make_room()
    (group,) = [step for step in collection.duplicates(Modality.IMAGE) if isinstance(step, DuplicateGroup)]
    assert list(group.ids) == ["7", "twin"]
    catalog.close()
