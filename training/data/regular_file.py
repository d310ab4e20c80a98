"""Opens files that a list or a pattern names, which may be anything."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Opens a file to read its bytes; a pipe may never end, and so may a device.

    Raises:
        OSError: if it is none, or cannot be read.
        ValueError: if no file can have this name.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # what it says of a folder is clear enough
        raise OSError(errno.EINVAL, "is a pipe or a device, not a file")
    return path.open("rb")
