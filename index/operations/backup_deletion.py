"""Deleting a backup, and nothing else."""

from __future__ import annotations

from twinlens.index.durable import sync
from twinlens.index.errors import BackupNotFound, DamagedBackup
from twinlens.index.ids import check_backup_id
from twinlens.index.operations.backup import MANIFEST_FILE, alone
from twinlens.index.operations.backup_place import BACKUPS, BackupPlace
from twinlens.index.state import DATABASE_FILE


def delete_backup(root: str, backup: str) -> None:
    """Removes the files of a backup, and its folder.

    A damaged one may be deleted, and what a deletion or a backup that was cut off left; whether another process still
    writes that one cannot be known. Pictures stay: whether a backup that somebody makes at this moment, maybe on
    another machine, relies on one of them cannot be known either.

    Args:
        root: Where backups are kept: a folder or an fsspec address.
        backup: The backup's id.

    Raises:
        InvalidArgument: the id is not allowed.
        BackupNotFound: there is none of that id.
        BackupBusy: another call writes or deletes it.
        DamagedBackup: its folder is a link, or holds anything else; nothing was removed.
        CollectionError: the place cannot be reached or written.
    """
    place = BackupPlace(root)
    folder = f"{BACKUPS}/{check_backup_id(backup)}"
    with alone(place.root, backup):
        if place.local is not None and (place.local / folder).is_symlink():
            raise DamagedBackup(f"backup {backup} is a link to another folder: remove the link itself")
        names = place.names(folder)
        others = set(names) - {MANIFEST_FILE, DATABASE_FILE} | set(place.folders(folder))
        # A database alone is what a deletion or a backup that was cut off left.
        if MANIFEST_FILE not in names and (others or DATABASE_FILE not in names):
            raise BackupNotFound(f"there is no complete backup {backup}")
        if others:
            other = ascii(min(others))[:80]
            raise DamagedBackup(
                f"the folder of backup {backup} holds what is not of a backup, such as {other}: it stays"
            )
        place.remove_all([f"{folder}/{MANIFEST_FILE}"])  # without it the rest is no backup, should this be cut off
        if place.local is not None:
            with place.clear_errors("tidied"):
                sync(place.local / folder)
        place.remove_all([f"{folder}/{DATABASE_FILE}"])
        place.remove_empty_folder(folder)
