"""Making files, folders and renames survive a power cut."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_SYNCS_AT_ONCE = 8


def sync(path: Path) -> None:
    """Writes a file's content, or a folder's entries (new names, renames, removals), to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Collection[Path]) -> None:
    """Syncs many at once: file systems write their journal once for all that wait, which is many times faster."""
    if len(paths) == 1:
        sync(*paths)
    elif paths:
        with ThreadPoolExecutor(min(len(paths), _SYNCS_AT_ONCE)) as pool:  # these threads only wait for the disk
            for _ in pool.map(sync, paths):
                pass  # raises what a sync raised


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes a small file in one durable step: whoever reads it finds the old content or the new."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:  # of a full disk, say: what was written is not to take more of it
        with suppress(OSError):
            beside.unlink()
        raise
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Creates a folder and its missing parents, each durably named in its own parent."""
    if folder.is_dir():
        return
    if folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)
