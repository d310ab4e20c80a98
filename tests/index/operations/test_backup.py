from __future__ import annotations

import shutil
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.support.backups import back_up, catalog_folder, contents, files_below, item, restore, twenty_photos
from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import (
    BackupExists,
    BackupNotFound,
    CollectionError,
    CollectionExists,
    CollectionNotFound,
    CorruptCollection,
    DamagedBackup,
    InvalidArgument,
    ItemNotFound,
)
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.steps import Backup, Finding, Progress


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return twenty_photos(catalog)


def test_a_backup_restores_everything_under_another_name(catalog: Catalog, collection: Collection, place: str) -> None:
    made = back_up(collection, place, "monday")
    assert (made.id, made.collection, made.space_id, made.items) == ("monday", "photos", SPACE, 20)
    assert list_backups(place) == [made]
    size = sum((Path(place) / name).stat().st_size for name in files_below(Path(place)) if not name.endswith(".json"))
    assert made.size_bytes == size
    restored = restore(catalog, place, "monday", id="copy")
    assert contents(restored) == contents(collection)
    assert (restored.id, restored.space_id, restored.kind) == ("copy", SPACE, collection.kind)
    hits = restored.search(axis(3)[np.newaxis], modality=Modality.IMAGE, top_k=2, space_id=SPACE)[0]
    assert [hit.item.id for hit in hits] == ["item-03", "item-11"]
    restored.upsert([new_item("more")], space_id=SPACE)
    assert collection.stats().items == 20


def test_a_merged_and_indexed_collection_restores_to_one_that_is_sound(
    catalog: Catalog, collection: Collection, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="twinlens")
    collection.add_metadata_index("year")
    collection.merge(kind=Kind.FLAT)
    collection.upsert([new_item("fresh", metadata={"year": 2020})], space_id=SPACE)
    collection.delete(["item-05"])
    back_up(collection, place, "one")
    restored = restore(catalog, place, "one", id="copy")
    assert "are gone" not in caplog.text  # a backup has no merged files, and nothing says that it should
    assert contents(restored) == contents(collection)
    assert [found.id for found in restored.list(filter="year = 2020")] == ["fresh"]
    assert restored.stats().metadata_indexes == collection.stats().metadata_indexes
    assert restored.kind is Kind.FLAT
    assert not [step for step in restored.check() if isinstance(step, Finding)]


def test_a_backup_on_an_object_store_restores_everything(
    catalog: Catalog, collection: Collection, bucket: str, tmp_path: Path
) -> None:
    place = f"{bucket}/backups-of-us"
    made = back_up(collection, place)
    assert made.id.startswith("photos-2")
    collection.upsert([item(3, caption="changed")], space_id=SPACE)
    later = back_up(collection, place, "photos-later")
    assert list_backups(place) == [made, later]
    assert not list((tmp_path / "data/collections/photos").glob(".snapshot*"))
    assert contents(restore(catalog, place, "photos-later", id="copy")) == contents(collection)
    assert restore(catalog, place, made.id, id="older").get("item-03").caption == ""
    fs, root = fsspec.url_to_fs(place)
    fs.rm_file(next(path for path in fs.find(f"{root}/pictures") if path))
    with pytest.raises(DamagedBackup, match=r"picture [0-9a-f]{64} is missing"):
        restore(catalog, place, made.id, id="again")


@pytest.mark.usefixtures("bucket")
def test_a_place_that_cannot_be_reached_is_named(collection: Collection, tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="backups at s3://no-such-bucket"):
        back_up(collection, "s3://no-such-bucket-of-ours/backups")
    with pytest.raises(InvalidArgument, match="nosuch"):
        back_up(collection, "nosuch://backups")
    with pytest.raises(InvalidArgument, match="place for backups is empty"):
        back_up(collection, "")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CollectionError, match="cannot be"):
        back_up(collection, str(tmp_path / "file"))


def test_pictures_are_copied_once_and_shared(collection: Collection, place: str) -> None:
    back_up(collection, place, "one")
    pictures = Path(place) / "pictures"
    before = {name: (pictures / name).stat().st_ino for name in files_below(pictures)}
    assert len(before) == 15
    collection.upsert([new_item("new", image=b"another picture")], space_id=SPACE)
    back_up(collection, place, "two")
    after = {name: (pictures / name).stat().st_ino for name in files_below(pictures)}
    assert len(after) == 16
    assert before.items() <= after.items()


def test_writes_go_on_and_a_backup_holds_the_moment_it_was_begun(
    catalog: Catalog, collection: Collection, place: str
) -> None:
    expected = contents(collection)
    steps = collection.backup(place, backup="moment")
    while next(steps) != Progress("database", 1, 1):
        pass
    collection.delete([f"item-{number:02d}" for number in range(10)])
    collection.upsert([new_item("item-12", image=b"replaced")], space_id=SPACE)
    *_, made = steps
    assert isinstance(made, Backup)
    assert made.items == 20
    assert contents(restore(catalog, place, "moment", id="copy")) == expected
    live = {path.name for path in Path(catalog_folder(catalog, "photos") / "blobs").rglob("*") if path.is_file()}
    named = {entry.content_hash for entry in collection.list(limit=99)}
    assert live == named, "pictures that were kept for the backup are removed after it"


def test_backups_beside_writers_restore_to_a_state_that_there_was(
    catalog: Catalog, collection: Collection, place: str
) -> None:
    stop = threading.Event()

    def write() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            pair = [
                new_item(f"pair-{side}", image=b"version %d" % version, caption=f"{version}") for side in ("a", "b")
            ]
            collection.upsert(pair, space_id=SPACE)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(4):
            back_up(collection, place, f"backup-{number}")
    finally:
        stop.set()
        writer.join()
    for number in range(4):
        restored = restore(catalog, place, f"backup-{number}", id=f"copy-{number}")
        pairs = [entry for entry in restored.list(limit=99) if entry.id.startswith("pair")]
        assert len({entry.caption for entry in pairs}) <= 1
        for entry in pairs:
            assert restored.get_image(entry.id) == f"version {entry.caption}".encode()


def test_an_interrupted_backup_is_none_and_leaves_only_pictures(
    catalog: Catalog, collection: Collection, place: str
) -> None:
    count = len(list(collection.backup(place, backup="whole")))
    shutil.rmtree(place)
    for taken in range(1, count):
        steps = collection.backup(place, backup="half")
        for _ in range(taken):
            next(steps)
        steps.close()  # type: ignore[attr-defined]
        assert list_backups(place) == []
        assert all(name.startswith("pictures/") for name in files_below(Path(place)))
        with pytest.raises(BackupNotFound, match="no complete backup half"):
            restore(catalog, place, "half", id="copy")
    back_up(collection, place, "half")
    assert contents(restore(catalog, place, "half", id="copy")) == contents(collection)


def test_a_collection_closes_while_it_is_backed_up(catalog: Catalog, collection: Collection, place: str) -> None:
    steps = collection.backup(place, backup="half")
    next(steps)
    catalog.close()
    with pytest.raises(CollectionNotFound):
        list(steps)
    assert list_backups(place) == []


def test_whoever_waits_to_close_a_collection_does_not_wait_for_its_database_to_be_copied(
    collection: Collection, place: str
) -> None:
    collection._state.closing.set()
    with pytest.raises(CollectionNotFound, match="is being closed"):
        back_up(collection, place)


def test_a_database_with_a_damaged_vector_is_not_backed_up_until_its_item_is_stored_again(
    catalog: Catalog, collection: Collection, place: str
) -> None:
    with collection._state.writing, collection._state.database.write() as connection:
        key, vector = connection.execute("SELECT item, vector FROM vectors WHERE item = 8").fetchone()
        flipped = bytes([vector[0] ^ 1]) + vector[1:]
        connection.execute("UPDATE vectors SET vector = ? WHERE item = ?", (flipped, key))
    message = "collection photos: the vector of item number 8 is damaged; a check names every such item"
    with pytest.raises(CorruptCollection, match=message):
        back_up(collection, place, "one")
    assert list_backups(place) == []
    collection.upsert([item(7)], space_id=SPACE)
    back_up(collection, place, "one")
    assert contents(restore(catalog, place, "one", id="copy")) == contents(collection)


@pytest.mark.parametrize("remote", [False, True])
def test_a_large_database_is_copied_in_parts_between_which_the_copying_can_be_stopped(
    catalog: Catalog, collection: Collection, place: str, bucket: str, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    for module in ("backup", "backup_place", "restore"):
        monkeypatch.setattr(f"twinlens.index.operations.{module}.PART_BYTES", 2**14)
    to = f"{bucket}/in-parts" if remote else place
    made = [step for step in collection.backup(to, backup="one") if isinstance(step, Progress)]
    copied = [step.done for step in made if step.step == "database"]
    assert copied == list(range(copied[-1] + 1))
    assert copied[-1] > 3
    restored = [step for step in catalog.restore(to, "one", id="copy") if isinstance(step, Progress)]
    assert [step.done for step in restored if step.step == "database"] == copied
    steps = collection.backup(to, backup="two")
    while next(steps) != Progress("database", 2, copied[-1]):
        pass
    steps.close()  # type: ignore[attr-defined]
    assert [backup.id for backup in list_backups(to)] == ["one"]
    restoring = catalog.restore(to, "one", id="other")
    while next(restoring) != Progress("database", 2, copied[-1]):
        pass
    restoring.close()  # type: ignore[attr-defined]
    with pytest.raises(CollectionNotFound):
        catalog.get("other")


def test_all_of_a_backup_is_on_disk_before_it_counts(
    collection: Collection, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if target.name == "backup.json":
            assert [f"{target.parent}/collection.db", f"{target.parent}"] == synced
        return rename(path, target)

    monkeypatch.setattr("twinlens.index.operations.backup.sync", lambda path: synced.append(str(path)))
    monkeypatch.setattr(Path, "rename", renamed)
    back_up(collection, place, "one")
    assert synced


def test_what_an_interrupted_backup_left_is_cleared_by_the_next_of_its_id(collection: Collection, place: str) -> None:
    left = Path(place) / "backups" / "one" / "left"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left")
    back_up(collection, place, "one")
    assert not left.exists()


def test_names_that_are_taken_are_refused(catalog: Catalog, collection: Collection, place: str) -> None:
    back_up(collection, place, "one")
    with pytest.raises(BackupExists, match="backup one"):
        back_up(collection, place, "one")
    with pytest.raises(CollectionExists, match="collection photos"):
        restore(catalog, place, "one")
    with pytest.raises(InvalidArgument, match="backup id"):
        back_up(collection, place, "../one")
    with pytest.raises(InvalidArgument, match="backup id"):
        restore(catalog, place, "../one")
    steps = collection.backup(place, backup="two")
    next(steps)
    with pytest.raises(BackupExists, match="backup two is being written"):
        back_up(collection, place, "two")
    list(steps)
    assert [made.id for made in list_backups(place)] == ["one", "two"]


def test_backups_without_a_name_never_collide(collection: Collection, place: str) -> None:
    names = [back_up(collection, place).id for _ in range(3)]
    assert len(set(names)) == 3
    assert [made.id for made in list_backups(place)] == sorted(names)


def test_backups_are_listed_by_page_and_by_collection(catalog: Catalog, collection: Collection, place: str) -> None:
    assert list_backups(place) == []
    other = catalog.create("other", space_id=SPACE, dimension=DIMENSION)
    for number in range(3):
        back_up(collection, place, f"photos-{number}")
        back_up(other, place, f"other-{number}")
    (Path(place) / "backups" / "unfinished").mkdir()
    assert [made.id for made in list_backups(place, limit=2)] == ["other-0", "other-1"]
    assert [made.id for made in list_backups(place, after="other-1", limit=2)] == ["other-2", "photos-0"]
    assert [made.id for made in list_backups(place, collection="photos")] == ["photos-0", "photos-1", "photos-2"]


def test_a_lost_picture_does_not_stop_a_backup_and_is_counted(
    catalog: Catalog, collection: Collection, place: str
) -> None:
    back_up(collection, place, "before")
    collection.upsert([new_item("lost", image=b"will be lost")], space_id=SPACE)
    blobs = catalog_folder(catalog, "photos") / "blobs"
    for entry in ("lost", "item-00"):
        digest = collection.get(entry).content_hash
        (blobs / digest[:2] / digest[2:4] / digest).unlink()
    made = back_up(collection, place, "after")
    assert made.missing_pictures == 1, "the other one is in the backup before"
    restored = restore(catalog, place, "after", id="copy")
    assert restored.get_image("item-00") == b"picture 0"
    with pytest.raises(CollectionError, match="picture of item 'lost' is missing"):
        restored.get_image("lost")
    with pytest.raises(ItemNotFound):
        restored.get_image("nobody")
