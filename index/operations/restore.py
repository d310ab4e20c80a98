"""Making a collection's folder of a backup."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from twinlens.index.blobs import BlobStore, content_hash
from twinlens.index.database import Database
from twinlens.index.errors import BackupNotFound, DamagedBackup
from twinlens.index.ids import check_backup_id
from twinlens.index.operations.backup import picture_path, read_manifest
from twinlens.index.operations.backup_manifest import BackupManifest
from twinlens.index.operations.backup_place import BACKUPS, PART_BYTES, BackupPlace
from twinlens.index.operations.snapshot import open_snapshot, picture_names
from twinlens.index.operations.steps import Progress
from twinlens.index.state import BLOB_FOLDER, DATABASE_FILE

_BATCH_FILES = 32  # read and held in memory together; a picture has some megabytes


def find_backup(place: BackupPlace, backup: str) -> BackupManifest:
    """The description of a backup.

    Raises:
        BackupNotFound: there is no complete one of that id.
        DamagedBackup: its description is damaged, or of a newer format.
    """
    manifest = read_manifest(place, check_backup_id(backup))
    if manifest is None:
        raise BackupNotFound(f"there is no complete backup {backup}")
    return manifest


def restore_into(folder: Path, place: BackupPlace, manifest: BackupManifest, name: str) -> Iterator[Progress]:
    """Writes all files of a backup into a folder, and verifies each on the way.

    Args:
        folder: Empty, and nobody has it open.
        place: Where the backup is.
        manifest: The backup's description.
        name: What to call the collection in errors.

    Raises:
        DamagedBackup: a file is missing, cut off or changed; it is named.
        CorruptCollection: its database is of a newer schema.
        CollectionError: the place cannot be read, or the disk is full (OSError, for the database).
    """
    named = f"backup {manifest.backup.id}"
    database = folder / DATABASE_FILE
    total = -(-manifest.database_bytes // PART_BYTES)
    yield Progress("database", 0, total)
    digest = hashlib.sha256()
    there = f"{BACKUPS}/{manifest.backup.id}"
    if place.sizes(there).get(DATABASE_FILE) != manifest.database_bytes:
        raise DamagedBackup(f"{named} is damaged: its {DATABASE_FILE} is missing or has another size")
    parts = place.copy_out(f"{there}/{DATABASE_FILE}", database, manifest.database_bytes)
    for done, part in enumerate(parts, start=1):
        digest.update(part)
        yield Progress("database", done, total)
    if digest.hexdigest() != manifest.database_sha256:
        raise DamagedBackup(f"{named} is damaged: its {DATABASE_FILE} was changed")
    blobs = BlobStore(folder / BLOB_FOLDER, name)
    missing = set(manifest.missing_pictures)
    with open_snapshot(database, named) as connection:
        digests = (name for names in picture_names(connection) for name in names if name not in missing)
        done = 0
        yield Progress("pictures", 0, manifest.pictures)
        while batch := list(itertools.islice(digests, _BATCH_FILES)):
            read = place.read_all({picture_path(digest): digest for digest in batch})
            pictures = [(digest, _sound(read[picture_path(digest)], digest, named)) for digest in batch]
            with blobs.hold(pictures):
                done += len(batch)
            yield Progress("pictures", done, manifest.pictures)
    restored = Database(database, name)  # brings an older schema up to date
    try:
        with restored.write() as connection:
            # Backups hold no merged files: what the database says of them is about those of another folder.
            connection.execute("DELETE FROM segments")
            connection.execute("DELETE FROM changes")
    finally:
        restored.close()


def _sound(data: bytes | None, digest: str, named: str) -> bytes:
    if data is None:
        raise DamagedBackup(f"{named} is damaged: its picture {digest} is missing")
    if content_hash(data) != digest:
        raise DamagedBackup(f"{named} is damaged: its picture {digest} was changed")
    return data
