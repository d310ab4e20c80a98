"""How much memory there is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# What a container may use, as version 2 and version 1 of control groups say it.
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def machine_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory of the machine, or what its container allows if that is less.

    Args:
        root: Where control groups are mounted.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            total = min(total, int((root / name).read_text(encoding="ascii")))
    return total
