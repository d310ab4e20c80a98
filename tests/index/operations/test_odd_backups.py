"""Places for backups that hold other things than those twinlens wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import BackupNotFound, DamagedBackup
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.backup_place import BackupPlace


@pytest.fixture
def place(tmp_path: Path, catalog: Catalog) -> Path:
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    collection.upsert([new_item("a", image_vector=axis(0), image=b"picture")], space_id=SPACE)
    place = tmp_path / "place"
    for name in ("first", "second"):
        for _ in collection.backup(str(place), backup=name):
            pass
    return place


def names(place: Path) -> list[str]:
    return [backup.id for backup in list_backups(str(place))]


def restore(catalog: Catalog, place: Path, backup: str) -> Collection:
    *_, restored = catalog.restore(str(place), backup, id="restored", replace=True)
    assert isinstance(restored, Collection)
    return restored


@pytest.mark.parametrize("kind", ["folder", "pipe", "endless", "dangling", "loop"])
def test_what_is_no_file_is_no_description_and_hides_no_other_backup(catalog: Catalog, place: Path, kind: str) -> None:
    description = place / "backups" / "first" / "backup.json"
    description.unlink()
    match kind:
        case "folder":
            description.mkdir()
        case "pipe":
            os.mkfifo(description)
        case "endless":
            description.symlink_to("/dev/zero")
        case "dangling":
            description.symlink_to(place / "nowhere")
        case _:
            description.symlink_to(description)
    assert names(place) == ["second"]
    with pytest.raises(BackupNotFound, match="no complete backup first"):
        restore(catalog, place, "first")
    for _ in catalog.get("photos").backup(str(place), backup="first"):
        pass
    assert names(place) == ["first", "second"]
    assert restore(catalog, place, "first").get("a").has_image


@pytest.mark.parametrize("kind", ["folder", "pipe", "endless"])
def test_what_is_no_file_is_no_picture(catalog: Catalog, place: Path, kind: str) -> None:
    (picture,) = (path for path in (place / "pictures").rglob("*") if path.is_file())
    picture.unlink()
    match kind:
        case "folder":
            picture.mkdir()
        case "pipe":
            os.mkfifo(picture)
        case _:
            picture.symlink_to("/dev/zero")
    with pytest.raises(DamagedBackup, match=f"its picture {picture.name} is missing"):
        restore(catalog, place, "first")
    assert "restored" not in {each.id for each in catalog.list()}


def test_a_folder_that_was_copied_or_renamed_is_a_backup_of_its_new_name(catalog: Catalog, place: Path) -> None:
    shutil.copytree(place / "backups" / "first", place / "backups" / "copy")
    (place / "backups" / "first").rename(place / "backups" / "moved")
    assert names(place) == ["copy", "moved", "second"]
    for name in ("copy", "moved"):
        assert restore(catalog, place, name).get("a").has_image
    (place / "backups" / "copy" / "collection.db").write_bytes(b"")
    with pytest.raises(DamagedBackup, match="backup copy is damaged"):
        restore(catalog, place, "copy")
    assert restore(catalog, place, "moved").get("a").has_image


def test_the_description_of_another_backup_is_not_taken_for_its_own(catalog: Catalog, place: Path) -> None:
    catalog.get("photos").upsert([new_item("b", image_vector=axis(1))], space_id=SPACE)
    for _ in catalog.get("photos").backup(str(place), backup="third"):
        pass
    shutil.copy(place / "backups" / "third" / "backup.json", place / "backups" / "first" / "backup.json")
    with pytest.raises(DamagedBackup, match="its collection"):
        restore(catalog, place, "first")
    assert "restored" not in {each.id for each in catalog.list()}


@pytest.mark.parametrize(
    "change",
    [{"backup": None}, {"backup": {}}, {"backup": []}, {"missing_pictures": 1}, {"more": 1}, {"pictures": ...}],
)
def test_a_description_with_the_right_digest_that_describes_nothing_is_refused(
    catalog: Catalog, place: Path, change: dict[str, Any]
) -> None:
    path = place / "backups" / "first" / "backup.json"
    content = {**json.loads(path.read_bytes()), **change}
    content = {name: value for name, value in content.items() if name != "sha256" and value is not ...}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**content, "sha256": digest}))
    assert names(place) == ["second"]
    with pytest.raises(DamagedBackup, match="does not describe a backup"):
        restore(catalog, place, "first")


@pytest.mark.parametrize("name", ["*", "[ab]", "a?", "sp ace é 日本", "%20#x?y=1"])
def test_a_place_may_be_called_anything_and_nothing_else_is_read_or_removed(
    catalog: Catalog, place: Path, tmp_path: Path, name: str
) -> None:
    beside = tmp_path / "places" / "ab"
    shutil.copytree(place, beside)
    odd = beside.with_name(name)
    for _ in catalog.get("photos").backup(str(odd), backup="odd"):
        pass
    assert names(odd) == ["odd"]
    assert restore(catalog, odd, "odd").get("a").has_image
    BackupPlace(str(odd)).remove_tree("backups")
    BackupPlace(str(odd)).remove_tree("backups")
    assert names(odd) == []
    assert names(beside) == ["first", "second"]
    assert restore(catalog, beside, "first").get("a").has_image
