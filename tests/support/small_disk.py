"""A real file system that can be full or read-only; skips where this process may not mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted file system in memory of a few MiB."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self, *, keep_bytes: int = 0) -> None:
        """Takes all room but so many bytes."""
        with self._ballast.open("ab", buffering=0) as file:
            block = bytes(4096)
            with suppress(OSError):
                while True:
                    file.write(block)
        kept = max(self._ballast.stat().st_size - keep_bytes, 0)
        with self._ballast.open("r+b") as file:
            file.truncate(kept)

    def make_room(self) -> None:
        """Gives back what `fill` took."""
        self._ballast.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Nothing can be written inside the block. No file may be open for writing when it begins."""
        subprocess.run(["mount", "-o", "remount,ro", self.root], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.root], check=True)


@contextmanager
def small_disk(root: Path, *, mib: int) -> Iterator[SmallDisk]:
    """Mounts one at a folder that is made, and takes it away at the end."""
    root.mkdir(parents=True)
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(root)]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this process may not mount a file system")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)
