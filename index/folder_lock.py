"""One process at a time has a data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from twinlens.index.errors import CollectionBusy


def lock_folder(root: Path) -> int:
    """Takes a data folder for this process and returns the descriptor that holds it until it is closed.

    Raises:
        CollectionBusy: another process, which is named, has it.
        OSError: the folder cannot be written to.
    """
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise CollectionBusy(f"the data folder {root} is in use by process {holder}") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
