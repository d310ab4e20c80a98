"""A disk that fails at one chosen call, so that every step of a longer operation can be made to fail in turn."""

from __future__ import annotations

import errno
import io
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_CALLS = ("fsync", "rename", "replace", "mkdir")


class FailingDisk:
    """Counts calls that change the disk; `failed` once the chosen one came."""

    def __init__(self, fails_at: int) -> None:
        self._numbers = itertools.count(1)
        self._fails_at = fails_at
        self._lock = threading.Lock()
        self.failed = ""

    def step(self, name: str) -> None:
        """One call."""
        with self._lock:
            if next(self._numbers) != self._fails_at:
                return
            self.failed = name
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@contextmanager
def failing_disk(fails_at: int) -> Iterator[FailingDisk]:
    """Within the block the call of that number, from 1, fails: a sync, a rename, a new folder, a file to be written."""
    disk = FailingDisk(fails_at)

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            disk.step(name)
            return real(*given, **options)

        return call

    def opened(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        if set(mode) & set("wxa+"):
            disk.step("open")
        return real_open(file, mode, *given, **options)

    real_open = io.open
    with pytest.MonkeyPatch.context() as patched:
        for name in _CALLS:
            patched.setattr(os, name, counted(name, getattr(os, name)))
        patched.setattr(io, "open", opened)
        yield disk
