"""Copying a collection to a folder or object store, while it is searched and written."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from twinlens.index import generations, stored_vectors
from twinlens.index.blobs import content_hash
from twinlens.index.durable import make_folder, sync
from twinlens.index.errors import BackupBusy, BackupExists, CollectionError, CorruptCollection, DamagedBackup
from twinlens.index.ids import check_backup_id, may_be_backup_id
from twinlens.index.operations import statements
from twinlens.index.operations.backup_manifest import BackupManifest, decode_manifest
from twinlens.index.operations.backup_place import BACKUPS, PART_BYTES, PICTURES, BackupPlace, parts_of
from twinlens.index.operations.snapshot import open_snapshot, picture_names, take_snapshot
from twinlens.index.operations.steps import Backup, Progress
from twinlens.index.paging import check_limit
from twinlens.index.state import DATABASE_FILE, SNAPSHOT_PREFIX, CollectionState

MANIFEST_FILE = "backup.json"

# What is read before it is written together: writing many files at once costs little more than writing one.
_BATCH_FILES = 64
_BATCH_BYTES = 32 * 2**20

_writing: set[tuple[str, str]] = set()
_writing_lock = threading.Lock()


@dataclass(slots=True)
class _Pictures:
    """What was found out about the pictures so far."""

    count: int = 0
    size_bytes: int = 0
    missing: list[str] = field(default_factory=list)


def back_up(state: CollectionState, collection_id: str, to: str, *, backup: str = "") -> Iterator[Progress | Backup]:
    """As `Collection.backup`."""
    place = BackupPlace(to)
    created_s = time.time()
    backup_id = check_backup_id(backup) if backup else _free_id(place, collection_id, created_s)
    folder = f"{BACKUPS}/{backup_id}"
    with alone(place.root, backup_id):
        if place.read(f"{folder}/{MANIFEST_FILE}") is not None:
            raise BackupExists(f"there is a backup {backup_id} already")
        place.remove_folder(folder)  # what an interrupted one left
        state.blobs.keep()
        try:
            made = yield from _copy(state, place, Backup(backup_id, collection_id, "", 0, 0, created_s))
        except BaseException:
            with suppress(CollectionError):
                place.remove_folder(folder)
            raise
        finally:
            with suppress(CollectionError), state.use():
                state.discard_blobs(state.blobs.release())
    yield made


def list_backups(root: str, *, collection: str = "", after: str = "", limit: int = 100) -> list[Backup]:
    """A page of the complete backups below a folder or fsspec address, by id, from the one behind `after`.

    Args:
        root: Where backups are kept.
        collection: Only those of this one; empty: all.
        after: Empty, or the id of the last one known.
        limit: How many at most, from 1.

    Raises:
        CollectionError: the place cannot be read.
    """
    check_limit(limit)
    place = BackupPlace(root)
    found: list[Backup] = []
    for backup_id in place.folders(BACKUPS):
        if len(found) == limit:
            break
        if backup_id > after and may_be_backup_id(backup_id):
            with suppress(DamagedBackup):  # it is none, and restoring it says why
                manifest = read_manifest(place, backup_id)
                if manifest is not None and collection in {"", manifest.backup.collection}:
                    found.append(manifest.backup)
    return found


def read_manifest(place: BackupPlace, backup_id: str) -> BackupManifest | None:
    """What a backup says of itself; None where there is no complete one of that id.

    A folder that was copied or renamed is a backup of its new name.

    Raises:
        DamagedBackup: it is damaged, or of a newer format.
    """
    data = place.read(f"{BACKUPS}/{backup_id}/{MANIFEST_FILE}")
    if data is None:
        return None
    manifest = decode_manifest(data, f"backup {backup_id}")
    return replace(manifest, backup=replace(manifest.backup, id=backup_id))


def _copy(state: CollectionState, place: BackupPlace, backup: Backup) -> Generator[Progress, None, Backup]:
    """Writes all files, the manifest last."""
    yield Progress("database", 0, 1)
    target = f"{BACKUPS}/{backup.id}/{DATABASE_FILE}"
    with _snapshot(state, place, target) as snapshot:
        size_bytes = snapshot.stat().st_size
        with open_snapshot(snapshot, state.name) as connection:
            yield from _read_vectors(state, connection)
        digest = yield from _bring(place, snapshot, target)
        with open_snapshot(snapshot, state.name) as connection:
            pictures = _Pictures()
            yield from _copy_pictures(state, place, connection, pictures)
            space_id, items = connection.execute(
                "SELECT space_id, (SELECT count(*) FROM items) FROM collection"
                " JOIN generations ON number = active_generation",
            ).fetchone()
    made = replace(
        backup,
        space_id=space_id,
        items=items,
        size_bytes=size_bytes + pictures.size_bytes,
        missing_pictures=len(pictures.missing),
    )
    manifest = BackupManifest(made, size_bytes, digest, pictures.count, tuple(pictures.missing))
    place.write_all({f"{BACKUPS}/{backup.id}/{MANIFEST_FILE}": manifest.encode()})
    return made


@contextmanager
def _snapshot(state: CollectionState, place: BackupPlace, target: str) -> Iterator[Path]:
    """Takes a snapshot, where the place is a folder right there, so that it need not be copied once more."""
    if place.local is not None:
        path = place.local / target
        with place.clear_errors("written"):
            make_folder(path.parent)
    else:
        path = state.folder / f"{SNAPSHOT_PREFIX}{uuid.uuid4().hex}"
    try:
        take_snapshot(state, path)
        yield path
    finally:
        if place.local is None:
            path.unlink(missing_ok=True)


def _read_vectors(state: CollectionState, connection: sqlite3.Connection) -> Iterator[Progress]:
    """Refuses what would make a collection that cannot be opened: SQLite does not see a vector that has changed."""
    for of in generations.all_generations(connection):
        done = 0
        try:
            for _, keys, _ in stored_vectors.stream_vectors(connection, of.number, of.dimension, state.name):
                state.check_not_closing()
                done += len(keys)
                yield Progress("vectors", done, max(done, of.items))
        except CorruptCollection as error:
            raise CorruptCollection(
                f"{error}; a check names every such item: store it again before a backup"
            ) from error


def _bring(place: BackupPlace, snapshot: Path, target: str) -> Generator[Progress, None, str]:
    """Sees that the snapshot is at the place and on disk; returns its SHA-256."""
    digest, total = hashlib.sha256(), -(-snapshot.stat().st_size // PART_BYTES)
    parts = place.copy_in(snapshot, target) if place.local is None else parts_of(snapshot)
    with place.clear_errors("written"):
        for done, part in enumerate(parts, start=1):
            digest.update(part)
            yield Progress("database", done, total)
        if place.local is not None:
            sync(snapshot)
            sync(snapshot.parent)
    return digest.hexdigest()


def _copy_pictures(
    state: CollectionState, place: BackupPlace, connection: sqlite3.Connection, pictures: _Pictures
) -> Iterator[Progress]:
    """Copies those pictures of the snapshot that the place does not hold yet."""
    total = statements.count_blobs(connection)
    done = 0
    yield Progress("pictures", 0, total)
    for digests in picture_names(connection):
        there = place.sizes(f"{PICTURES}/{digests[0][:2]}") if digests else {}
        batch: dict[str, bytes] = {}
        for digest in digests:
            data = _to_copy(state, place, digest, there, pictures)
            if data is not None:
                batch[picture_path(digest)] = data
            if len(batch) == _BATCH_FILES or sum(map(len, batch.values())) > _BATCH_BYTES:
                place.write_all(batch)
                batch.clear()
            done += 1
            if not batch:
                yield Progress("pictures", done, total)
        if batch:
            place.write_all(batch)
            yield Progress("pictures", done, total)


def _to_copy(
    state: CollectionState, place: BackupPlace, digest: str, there: Mapping[str, int], pictures: _Pictures
) -> bytes | None:
    """What has to be written of a picture; counts it. A lost one does not stop the backup: it is named in it."""
    with state.use():
        state.check_not_closing()
        size_bytes = state.blobs.size_of(digest)
        if size_bytes is not None and size_bytes == there.get(digest):
            pictures.count += 1
            pictures.size_bytes += size_bytes
            return None
        try:
            data = state.blobs.read(digest)
        except CorruptCollection:
            data = None
    kept = place.read(picture_path(digest)) if data is None and digest in there else None
    if kept is not None and content_hash(kept) == digest:  # lost here, but an earlier backup has it
        pictures.count += 1
        pictures.size_bytes += len(kept)
    elif data is None:
        pictures.missing.append(digest)
    else:
        pictures.count += 1
        pictures.size_bytes += len(data)
    return data


def picture_path(digest: str) -> str:
    """Where a picture lies below a place."""
    return f"{PICTURES}/{digest[:2]}/{digest}"


def _free_id(place: BackupPlace, collection_id: str, now_s: float) -> str:
    stem = f"{collection_id}-{time.strftime('%Y%m%dt%H%M%Sz', time.gmtime(now_s))}"
    taken: Sequence[str] = place.folders(BACKUPS)
    return next(name for name in [stem, *(f"{stem}-{i}" for i in range(2, len(taken) + 3))] if name not in taken)


@contextmanager
def alone(root: str, backup_id: str) -> Iterator[None]:
    """Keeps two threads from writing or deleting one backup.

    Raises:
        BackupBusy: another one does.
    """
    with _writing_lock:
        if (root, backup_id) in _writing:
            raise BackupBusy(f"backup {backup_id} is being written or deleted by another call")
        _writing.add((root, backup_id))
    try:
        yield
    finally:
        with _writing_lock:
            _writing.discard((root, backup_id))
