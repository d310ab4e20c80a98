from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

import pytest

from twinlens.index.blobs import BlobStore, content_hash
from twinlens.index.errors import CollectionError, CorruptCollection


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", "collection photos")


def put(store: BlobStore, *contents: bytes) -> list[str]:
    blobs = [(content_hash(data), data) for data in contents]
    with store.hold(blobs):
        return [digest for digest, _ in blobs]


def files(tmp_path: Path) -> set[str]:
    return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}


def test_blobs_lie_under_their_hash_in_two_levels(store: BlobStore, tmp_path: Path) -> None:
    (digest,) = put(store, b"content")
    assert files(tmp_path) == {f"blobs/{digest[:2]}/{digest[2:4]}/{digest}"}
    assert store.read(digest) == b"content"


def test_content_may_be_empty_or_large(store: BlobStore) -> None:
    contents = [b"", bytes(3_000_000)]
    assert [store.read(digest) for digest in put(store, *contents)] == contents


def test_the_same_content_is_written_once(store: BlobStore, tmp_path: Path) -> None:
    (digest,) = put(store, b"content")
    path = tmp_path / "blobs" / digest[:2] / digest[2:4] / digest
    before = path.stat().st_mtime_ns, path.stat().st_ino
    put(store, b"content", b"content")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_what_is_not_there_reads_as_none(store: BlobStore) -> None:
    assert store.read(content_hash(b"never stored")) is None


def test_changed_content_is_found_out(store: BlobStore, tmp_path: Path) -> None:
    (digest,) = put(store, b"content")
    (tmp_path / "blobs" / digest[:2] / digest[2:4] / digest).write_bytes(b"Content")
    with pytest.raises(CorruptCollection, match=f"collection photos: the stored picture {digest} is damaged"):
        store.read(digest)


def test_content_that_was_damaged_or_cut_off_is_mended_by_storing_it_again(store: BlobStore, tmp_path: Path) -> None:
    (digest,) = put(store, b"content")
    path = tmp_path / "blobs" / digest[:2] / digest[2:4] / digest
    for damaged in (b"Content", b"conten", b""):
        path.write_bytes(damaged)
        put(store, b"content")
        assert store.read(digest) == b"content"
        assert files(tmp_path) == {str(path.relative_to(tmp_path))}


def test_nobody_counts_on_a_name_that_another_writer_has_not_made_durable_yet(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = content_hash(b"content")
    path = tmp_path / "blobs" / digest[:2] / digest[2:4] / digest
    folders = {path.parent, path.parent.parent, tmp_path / "blobs"}
    synced: list[set[Path]] = []

    def sync_in_turn(paths: Iterable[Path]) -> None:
        synced.append(set(paths))
        if len(synced) == 2:  # the names of the first writer's blobs are there, but not on disk
            put(store, b"content")

    monkeypatch.setattr("twinlens.index.blobs.sync_all", sync_in_turn)
    put(store, b"content")
    assert synced[1:] == [folders, folders]
    put(store, b"content")
    assert len(synced) == 3, "all of it is durable by now"


def test_a_name_stays_in_doubt_after_a_sync_that_failed(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[set[Path]] = []

    def fail_once(paths: Iterable[Path]) -> None:
        synced.append(set(paths))
        if len(synced) == 2:
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("twinlens.index.blobs.sync_all", fail_once)
    with pytest.raises(CollectionError, match="cannot store pictures: input/output error"):
        put(store, b"content")
    put(store, b"content")
    assert synced[-1] == synced[1]


def test_a_blob_that_is_held_is_not_discarded_by_others(store: BlobStore) -> None:
    digest = content_hash(b"content")
    with store.hold([(digest, b"content")]):
        with store.hold([(digest, b"content")]):
            pass
        store.discard([digest])
        assert store.read(digest) == b"content"
    store.discard([digest, content_hash(b"unknown")])
    assert store.read(digest) is None


def test_a_sweep_leaves_only_what_is_named(store: BlobStore, tmp_path: Path) -> None:
    kept, dropped = put(store, b"kept", b"dropped")
    (tmp_path / "blobs" / dropped[:2] / ".writing-x").write_bytes(b"half")
    store.sweep({kept})
    assert files(tmp_path) == {f"blobs/{kept[:2]}/{kept[2:4]}/{kept}"}
