"""Deleting backups: what is one goes, and nothing else does."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import BackupBusy, BackupNotFound, DamagedBackup, InvalidArgument, PlaceUnavailable
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.backup_deletion import delete_backup


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    made = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    made.upsert([new_item("a", image_vector=axis(0), image=b"picture")], space_id=SPACE)
    return made


@pytest.fixture
def place(tmp_path: Path, collection: Collection) -> Path:
    for name in ("first", "second"):
        back_up(collection, tmp_path / "place", name)
    return tmp_path / "place"


def back_up(collection: Collection, place: Path | str, name: str) -> None:
    for _ in collection.backup(str(place), backup=name):
        pass


def names(place: Path | str) -> list[str]:
    return [backup.id for backup in list_backups(str(place))]


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_backup_is_deleted_whole_and_others_are_restored_as_before(
    catalog: Catalog, collection: Collection, place: Path
) -> None:
    delete_backup(str(place), "first")
    assert names(place) == ["second"]
    assert [path.name for path in (place / "backups").iterdir()] == ["second"]
    *_, restored = catalog.restore(str(place), "second", id="restored")
    assert isinstance(restored, Collection)
    assert restored.get_image("a") == b"picture"
    with pytest.raises(BackupNotFound, match="no complete backup first"):
        delete_backup(str(place), "first")
    back_up(collection, place, "first")
    assert names(place) == ["first", "second"]


def test_a_backup_on_an_object_store_is_deleted_whole(collection: Collection, bucket: str) -> None:
    for name in ("first", "first-2"):
        back_up(collection, f"{bucket}/deleted-from", name)
    delete_backup(f"{bucket}/deleted-from", "first")
    assert names(f"{bucket}/deleted-from") == ["first-2"]
    files, root = fsspec.url_to_fs(f"{bucket}/deleted-from", use_listings_cache=False)
    assert [path.rpartition("/")[2] for path in files.ls(f"{root}/backups", detail=False)] == ["first-2"]
    with pytest.raises(BackupNotFound):
        delete_backup(f"{bucket}/deleted-from", "first")


@pytest.mark.parametrize("damage", ["description", "database", "lost"])
def test_a_damaged_backup_can_be_deleted(place: Path, damage: str) -> None:
    folder = place / "backups" / "first"
    match damage:
        case "description":
            (folder / "backup.json").write_text("{}")
        case "database":
            (folder / "collection.db").write_bytes(b"")
        case _:
            (folder / "collection.db").unlink()
    delete_backup(str(place), "first")
    assert not folder.exists()


@pytest.mark.parametrize(
    "name", ["..", "../pictures", "/", "", ".", "first/", "first/../second", "first\x00", "*", "FIRST"]
)
def test_names_never_lead_out_of_the_folder_of_backups(place: Path, name: str) -> None:
    before = below(place)
    with pytest.raises(InvalidArgument, match="backup id"):
        delete_backup(str(place), name)
    assert below(place) == before


def test_what_is_no_backup_is_not_deleted(place: Path) -> None:
    (place / "backups" / "mine").mkdir()
    (place / "backups" / "mine" / "letter.txt").write_text("dear")
    (place / "backups" / "file").write_text("no folder")
    before = below(place)
    for name in ("mine", "file", "never"):
        with pytest.raises(BackupNotFound, match=f"no complete backup {name}"):
            delete_backup(str(place), name)
    assert below(place) == before


@pytest.mark.parametrize("more", ["letter.txt", "folder/letter.txt", ".hidden", "collection.db/letter.txt"])
def test_a_backup_among_other_things_is_left_as_it_is(place: Path, more: str) -> None:
    folder = place / "backups" / "first"
    if more.startswith("collection.db"):
        (folder / "collection.db").unlink()
    (folder / more).parent.mkdir(exist_ok=True)
    (folder / more).write_text("dear")
    before = below(place)
    with pytest.raises(DamagedBackup, match="first holds what is not of a backup"):
        delete_backup(str(place), "first")
    assert below(place) == before


def test_links_are_not_followed(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(place / "backups" / "first", elsewhere)
    (place / "backups" / "link").symlink_to(elsewhere)
    with pytest.raises(DamagedBackup, match="link"):
        delete_backup(str(place), "link")
    database = place / "backups" / "first" / "collection.db"
    database.unlink()
    database.symlink_to(elsewhere / "collection.db")
    delete_backup(str(place), "first")
    assert below(elsewhere) == ["backup.json", "collection.db"]
    assert not database.parent.exists()


def test_a_backup_that_is_being_written_is_not_deleted(collection: Collection, place: Path) -> None:
    steps = collection.backup(str(place), backup="third")
    next(steps)
    with pytest.raises(BackupBusy, match="backup third is being written"):
        delete_backup(str(place), "third")
    list(steps)
    delete_backup(str(place), "third")
    assert names(place) == ["first", "second"]


def test_a_deletion_that_is_cut_off_leaves_no_half_of_a_backup(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(path: Path) -> None:
        assert not (path / "backup.json").exists()
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("twinlens.index.operations.backup_deletion.sync", cut_off)
        with pytest.raises(PlaceUnavailable, match="input/output error"):
            delete_backup(str(place), "first")
    assert (place / "backups" / "first" / "collection.db").exists()
    assert names(place) == ["second"]


def test_what_a_deletion_that_was_cut_off_left_can_be_deleted(place: Path) -> None:
    (place / "backups" / "first" / "backup.json").unlink()
    delete_backup(str(place), "first")
    assert not (place / "backups" / "first").exists()
    with pytest.raises(BackupNotFound, match="no complete backup first"):
        delete_backup(str(place), "first")


def test_a_restore_whose_backup_is_deleted_meanwhile_keeps_the_collection_before(
    catalog: Catalog, collection: Collection, place: Path
) -> None:
    steps = catalog.restore(str(place), "first", replace=True)
    next(steps)
    delete_backup(str(place), "first")
    with pytest.raises(DamagedBackup, match=r"collection\.db is missing"):
        list(steps)
    assert collection.get_image("a") == b"picture"
