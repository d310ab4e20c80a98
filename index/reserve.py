"""A little of the disk that is kept for the time when it is full."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from twinlens.index.database import is_out_of_room
from twinlens.index.errors import CollectionError

T = TypeVar("T")

_ROOM = 4  # a disk that has no more left than so many times the reserve is not made fuller by it


class Reserve:
    """A file that takes room and is given up for deletions: these must write, too, before they free anything.

    Whoever fills the disk may take the room first; a deletion then fails as it would without.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Does nothing yet.

        Args:
            path: The file; nobody else has to do with it.
            size_bytes: How long; 0: there is never one.
        """
        self._path = path
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._there = False

    def fill(self) -> None:
        """Takes the room, unless that was done or the disk has little left."""
        with self._lock, suppress(OSError):
            if self._there or not self._size_bytes:
                return
            if self._path.exists():  # of a run before
                if self._path.stat().st_size == self._size_bytes:
                    self._there = True
                    return
                self._path.unlink()
            if shutil.disk_usage(self._path.parent).free < _ROOM * self._size_bytes:
                return
            try:
                with self._path.open("wb") as file:
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, self._size_bytes)
                    else:  # macOS
                        file.write(bytes(self._size_bytes))
            except OSError:
                self._path.unlink(missing_ok=True)
                raise
            self._there = True

    def lend(self, delete: Callable[[], T]) -> T:
        """Deletes, and where that fails for want of room gives up the reserve and tries once more."""
        try:
            return delete()
        except CollectionError as error:
            if not (is_out_of_room(error) and self._give_up()):
                raise
        return delete()

    def _give_up(self) -> bool:
        """Frees the room; False where there was none."""
        with self._lock:
            if not self._there:
                return False
            self._there = False
            with suppress(OSError):
                self._path.unlink()
            return True
