from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.items import SPACE, new_item
from twinlens.index.catalog import Catalog, DamagedCollection
from twinlens.index.errors import (
    CollectionBusy,
    CollectionError,
    CollectionExists,
    CollectionNotFound,
    CorruptCollection,
    InvalidArgument,
)
from twinlens.index.item import Modality

HOLD = """
import sys
from twinlens.index.catalog import Catalog
catalog = Catalog(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_faiss_is_loaded_only_once_vectors_are() -> None:
    code = "import sys, twinlens.index.catalog; sys.exit('faiss' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_collections_are_listed_by_id_in_pages(catalog: Catalog) -> None:
    for name in ("b", "a-1", "c", "a"):
        catalog.create(name, space_id=SPACE, dimension=4)
    assert [collection.id for collection in catalog.list()] == ["a", "a-1", "b", "c"]
    assert [collection.id for collection in catalog.list(after="a", limit=2)] == ["a-1", "b"]
    with pytest.raises(InvalidArgument, match="limit is 0"):
        catalog.list(limit=0)


def test_folders_that_are_no_collections_are_passed_over(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path)) as catalog:
        catalog.create("photos", space_id="s", dimension=4)
        for name in ("lost+found", "Photos (copy)", ".trash"):
            (tmp_path / "collections" / name).mkdir()
        assert [collection.id for collection in catalog.list()] == ["photos"]


def test_a_collection_is_opened_once_and_shared(catalog: Catalog) -> None:
    created = catalog.create("a", space_id=SPACE, dimension=4)
    assert catalog.get("a") is created is catalog.list()[0]


def test_an_id_is_taken_only_once(catalog: Catalog) -> None:
    catalog.create("a", space_id=SPACE, dimension=4)
    with pytest.raises(CollectionExists, match="there is a collection a already"):
        catalog.create("a", space_id="other", dimension=8)
    assert catalog.get("a").space_id == SPACE


@pytest.mark.parametrize("call", ["get", "delete"])
def test_what_does_not_exist_is_named(catalog: Catalog, call: str) -> None:
    with pytest.raises(CollectionNotFound, match="there is no collection nowhere"):
        getattr(catalog, call)("nowhere")


@pytest.mark.parametrize("call", ["get", "delete"])
@pytest.mark.parametrize("bad", ["..", "../x", "a/b", "", ".lock"])
def test_an_id_never_leads_out_of_the_folder(catalog: Catalog, call: str, bad: str) -> None:
    with pytest.raises(InvalidArgument, match="collection id"):
        getattr(catalog, call)(bad)


@pytest.mark.parametrize(("space_id", "dimension"), [("", 4), ("s", 0), ("s", -1)])
def test_a_collection_needs_a_space_and_a_dimension(catalog: Catalog, space_id: str, dimension: int) -> None:
    with pytest.raises(InvalidArgument, match="needs a space and a dimension"):
        catalog.create("a", space_id=space_id, dimension=dimension)
    assert catalog.list() == []


def test_a_deleted_collection_is_gone_with_its_files_and_can_be_made_anew(catalog: Catalog) -> None:
    old = catalog.create("a", space_id=SPACE, dimension=8)
    old.upsert([new_item("x", image=b"picture")], space_id=SPACE)
    catalog.delete("a")
    assert list(catalog._folder.iterdir()) == []
    with pytest.raises(CollectionNotFound, match="no longer open"):
        old.get("x")
    assert catalog.create("a", space_id="other", dimension=4).stats().items == 0


def test_a_data_folder_belongs_to_one_process_and_the_error_says_which(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CollectionBusy, match=rf"in use by process {other.pid}$"):
            Catalog(tmp_path)
        other.kill()
    Catalog(tmp_path).close()  # a killed holder leaves nothing behind


def test_a_data_folder_is_held_once_within_a_process_too(tmp_path: Path) -> None:
    first = Catalog(tmp_path)
    with pytest.raises(CollectionBusy, match=f"process {os.getpid()}"):
        Catalog(tmp_path)
    first.close()
    Catalog(tmp_path).close()


def test_a_closed_catalog_says_so(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.close()
    catalog.close()
    for call in (catalog.list, lambda: catalog.get("a"), lambda: catalog.create("a", space_id=SPACE, dimension=1)):
        with pytest.raises(CollectionError, match="catalog is closed"):
            call()


def test_closing_leaves_no_write_ahead_log_behind(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create("a", space_id=SPACE, dimension=8).upsert([new_item("x")], space_id=SPACE)
    catalog.close()
    assert [path.name for path in (tmp_path / "collections" / "a").iterdir() if path.is_file()] == ["collection.db"]


def test_what_a_crash_left_half_made_or_half_removed_is_cleared(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create("a", space_id=SPACE, dimension=4)
    catalog.close()
    for leftover in (".a-0123", ".b-4567"):
        folder = tmp_path / "collections" / leftover
        folder.mkdir()
        (folder / "collection.db").write_bytes(b"half")
    catalog = Catalog(tmp_path)
    assert [collection.id for collection in catalog.list()] == ["a"]
    assert [path.name for path in (tmp_path / "collections").iterdir()] == ["a"]
    catalog.close()


def test_creating_that_fails_half_way_leaves_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("twinlens.index.catalog.sync", no_space)
    with pytest.raises(CollectionError, match="collection a: no space left on device"):
        catalog.create("a", space_id=SPACE, dimension=4)
    assert list(catalog._folder.iterdir()) == []


def test_a_disk_that_fills_up_while_creating_is_one_clear_error(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("twinlens.index.catalog.generations.insert_generation", full)
    with pytest.raises(CollectionError, match="the disk is full"):
        catalog.create("photos", space_id="s", dimension=4)
    assert catalog.list() == []


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CollectionError, match=r"the data folder .*: not a directory"):
        Catalog(tmp_path / "file" / "data")


def test_a_damaged_collection_can_be_deleted_and_leaves_the_others_alone(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create("bad", space_id=SPACE, dimension=4)
    catalog.create("good", space_id=SPACE, dimension=4)
    catalog.close()
    (tmp_path / "collections" / "bad" / "collection.db").write_bytes(b"rubbish" * 1000)
    catalog = Catalog(tmp_path)
    assert catalog.get("good").stats().items == 0
    with pytest.raises(CorruptCollection, match="collection bad"):
        catalog.get("bad")
    catalog.delete("bad")
    assert [collection.id for collection in catalog.list()] == ["good"]
    catalog.close()


def test_a_damaged_collection_is_listed_as_such_and_does_not_stop_the_others(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path)) as catalog:
        for name in ("a", "b", "c"):
            catalog.create(name, space_id=SPACE, dimension=4)
    database = tmp_path / "collections" / "b" / "collection.db"
    sound = database.read_bytes()
    database.write_bytes(b"nothing that SQLite knows" * 100)
    with closing(Catalog(tmp_path)) as catalog:
        assert [collection.id for collection in catalog.list()] == ["a", "c"]
        assert [collection.id for collection in catalog.list(limit=1, after="a")] == ["c"]
        entries = catalog.entries()
        assert [entry.id for entry in entries] == ["a", "b", "c"]
        assert [entry.id for entry in entries if isinstance(entry, DamagedCollection)] == ["b"]
        assert isinstance(entries[1], DamagedCollection)
        assert entries[1].reason.startswith("collection b: its database is damaged")
        with pytest.raises(CorruptCollection, match="collection b"):
            catalog.get("b")
        database.write_bytes(sound)
        assert catalog.get("b").id == "b"
        assert [collection.id for collection in catalog.list()] == ["a", "b", "c"]


def test_a_damaged_collection_can_be_deleted(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path)) as catalog:
        catalog.create("a", space_id=SPACE, dimension=4)
    (tmp_path / "collections" / "a" / "collection.db").write_bytes(b"x" * 5000)
    with closing(Catalog(tmp_path)) as catalog:
        assert isinstance(catalog.entries()[0], DamagedCollection)
        catalog.delete("a")
        assert catalog.entries() == []
        assert catalog.create("a", space_id=SPACE, dimension=4).id == "a"


def test_a_collection_that_fails_to_close_keeps_no_other_and_not_the_folder_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(tmp_path)
    collections = [catalog.create(name, space_id=SPACE, dimension=4) for name in ("a", "b", "c")]

    def fail() -> None:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(collections[1]._state.current().engines[Modality.IMAGE], "close", fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            catalog.close()
    for name in ("a", "b", "c"):
        assert not (tmp_path / "collections" / name / "collection.db-wal").exists(), "its database was closed"
    Catalog(tmp_path).close()


def test_leftovers_that_cannot_be_cleared_are_a_clear_error_and_the_folder_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Catalog(tmp_path).close()
    (tmp_path / "collections" / ".restored.photos").mkdir()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        with pytest.raises(CollectionError, match=r"^the data folder .*: operation not permitted$"):
            Catalog(tmp_path)
    Catalog(tmp_path).close()
