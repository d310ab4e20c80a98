"""Placing a folder: it appears whole under its name, or not at all, whatever happens on the way."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What a killed process left is removed by the next one that comes by. No copy takes a day; and locks, which would tell
# at once whether the owner lives, are granted to everybody at the same time by some network file systems.
_ABANDONED_S = 24 * 3600.0


@contextmanager
def temporary_sibling(destination: Path) -> Iterator[Path]:
    """An unused path beside `destination`, to be filled and then placed; what is left there at the end is removed.

    Its name starts with a dot, so that repositories do not list it.

    Raises:
        OSError: if the folder above cannot be made.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(destination)
    sibling = destination.parent / f".{destination.name}.{secrets.token_hex(6)}.tmp"
    try:
        yield sibling
    finally:
        shutil.rmtree(sibling, ignore_errors=True)


def place(sibling: Path, destination: Path) -> None:
    """Makes the filled sibling durable and gives it its name.

    Raises:
        OSError: if the disk is full or read-only, or there is something at `destination` already.
    """
    for path in sibling.rglob("*"):
        _sync(path)
    _sync(sibling)
    sibling.rename(destination)
    _sync(destination.parent)


def _remove_abandoned(destination: Path) -> None:
    for path in destination.parent.iterdir():
        if not (path.name.startswith(f".{destination.name}.") and path.name.endswith(".tmp")):
            continue
        try:
            abandoned = time.time() - path.stat().st_mtime > _ABANDONED_S
        except OSError:  # its owner removed it meanwhile
            continue
        if abandoned:
            shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
