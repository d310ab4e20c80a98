"""Making a collection's folder of a backup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twinlens.index.operations.steps import Progress


def restore_into(folder: Path, root: str, backup: str, name: str) -> Iterator[Progress]:
    """Writes and verifies all files of a backup into a folder that nobody has open; `Catalog.restore` gives it a name.

    Args:
        folder: Made by the caller, and empty.
        root: Where backups are kept: a folder or an fsspec address.
        backup: Its id.
        name: What to call the collection in errors.

    Raises:
        BackupNotFound: there is no complete backup of that id.
        DamagedBackup: a file is missing, cut off or changed; it is named.
        CollectionError: the place cannot be read, or the disk is full.
    """
    raise NotImplementedError
