"""How much memory there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """What this process may use: the machine's memory, further limited by its cgroups (v2 and v1).

    Args:
        root: Where the file system begins; another one in tests.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limit of each cgroup on the way to the root, v2 (`memory.max`) and v1 (`memory.limit_in_bytes`)."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # no cgroups here
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        own = base / path.strip("/")
        for folder in (own, *own.parents):
            try:
                limit = (folder / name).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                limit = ""
            if limit.isdecimal():  # otherwise "max"
                yield int(limit)
            if folder == base:
                break
