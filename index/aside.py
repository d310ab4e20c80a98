"""Folders of collections that are being made, replaced or removed: aside until one rename, whatever cuts it off."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from twinlens.index.durable import sync

_ASIDE = "."  # no collection's id begins so: what is being made or removed is never seen
_RESTORED = ".restored."  # whole and about to take its name; no other folder aside has a second dot


def aside(folder: Path) -> Path:
    """A path beside a collection's folder under which there is nothing."""
    return folder.with_name(f"{_ASIDE}{folder.name}-{uuid.uuid4().hex}")


def clear_aside(root: Path) -> None:
    """Ends what a crash cut off: a replacement takes its place if nothing else has it, and all else is removed."""
    for restored in root.glob(f"{_RESTORED}*"):
        if not (named := root / restored.name.removeprefix(_RESTORED)).exists():
            restored.rename(named)  # its predecessor is moved away already
    for leftover in root.glob(f"{_ASIDE}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def take_place(made: Path, folder: Path, leave: Callable[[], None]) -> None:
    """Gives a finished folder its name in one durable step, in place of whatever has it.

    Args:
        made: The finished folder, aside; everything in it is on disk.
        folder: What it is to be called.
        leave: Called before the folder of that name is moved away, so that nobody uses it any more.

    Raises:
        OSError: nothing has changed.
    """
    restored, old = folder.with_name(f"{_RESTORED}{folder.name}"), aside(folder)
    shutil.rmtree(restored, ignore_errors=True)
    sync(made)
    made.rename(restored)
    try:
        sync(folder.parent)
        if folder.exists():
            leave()
            folder.rename(old)
        restored.rename(folder)
    except BaseException:
        with suppress(OSError):
            if old.exists():
                old.rename(folder)
            shutil.rmtree(restored, ignore_errors=True)  # else the next start would finish what failed here
        raise
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
