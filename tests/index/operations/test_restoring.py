"""Backups that are damaged, and collections in whose place one is restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backups import back_up, catalog_folder, contents, item, restore, twenty_photos
from tests.support.items import DIMENSION, SPACE, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import (
    BackupNotFound,
    CollectionNotFound,
    DamagedBackup,
)


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return twenty_photos(catalog)


def change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize("damage", [change, cut, Path.unlink])
@pytest.mark.parametrize("file", ["backups/one/collection.db", "backups/one/backup.json", "pictures/*/*"])
def test_a_damaged_backup_is_refused_by_name_before_anything_appears(
    catalog: Catalog, collection: Collection, place: str, file: str, damage: Callable[[Path], None]
) -> None:
    back_up(collection, place, "one")
    damage(min(Path(place).glob(file)))
    error = BackupNotFound if (file.endswith("json") and damage is Path.unlink) else DamagedBackup
    with pytest.raises(error, match="backup one"):
        restore(catalog, place, "one", id="copy")
    with pytest.raises(CollectionNotFound):
        catalog.get("copy")
    with pytest.raises(error):
        restore(catalog, place, "one", id="photos", replace=True)
    assert catalog.get("photos") is collection
    assert not [path for path in catalog_folder(catalog, "").iterdir() if path.name.startswith(".")]


def test_a_damaged_collection_is_replaced_by_its_backup(tmp_path: Path, place: str) -> None:
    catalog = Catalog(tmp_path / "own")
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    collection.upsert([item(number) for number in range(5)], space_id=SPACE)
    expected = contents(collection)
    back_up(collection, place, "one")
    collection.delete(["item-00"])
    catalog.close()
    database = tmp_path / "own/collections/photos/collection.db"
    database.write_bytes(b"no database at all" * 1000)
    catalog = Catalog(tmp_path / "own")
    assert contents(restore(catalog, place, "one", replace=True)) == expected
    catalog.close()
    catalog = Catalog(tmp_path / "own")
    assert contents(catalog.get("photos")) == expected
    catalog.close()


def test_an_open_collection_is_replaced_in_one_step(catalog: Catalog, collection: Collection, place: str) -> None:
    expected = contents(collection)
    back_up(collection, place, "one")
    collection.delete(["item-00"])
    restored = restore(catalog, place, "one", replace=True)
    assert catalog.get("photos") is restored
    assert contents(restored) == expected
    with pytest.raises(CollectionNotFound):
        collection.stats()


def test_a_replacement_cut_off_between_its_two_renames_is_completed_at_the_next_start(
    tmp_path: Path, place: str
) -> None:
    catalog = Catalog(tmp_path / "own")
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    collection.upsert([new_item("a")], space_id=SPACE)
    catalog.close()
    folder = tmp_path / "own/collections"
    (folder / "photos").rename(folder / ".restored.photos")
    catalog = Catalog(tmp_path / "own")
    assert catalog.get("photos").get("a").id == "a"
    catalog.close()
    shutil.copytree(folder / "photos", folder / ".restored.photos")
    catalog = Catalog(tmp_path / "own")
    assert [path.name for path in folder.iterdir()] == ["photos"]
    catalog.close()
