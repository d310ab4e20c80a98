"""Folders that the demos write to: their own, never someone else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from twinlens.training.demo.failed import DemoFailed


def claim(folder: Path, mark: str) -> None:
    """Takes a folder that an earlier run made, as it is, or makes it.

    Args:
        folder: The folder.
        mark: Name of the file in it by which a later run knows it.

    Raises:
        DemoFailed: if the folder holds something and has no mark.
    """
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / mark).is_file())):
        raise DemoFailed(f"{folder} holds something that no earlier demo left there; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / mark).touch()


def make_anew(folder: Path, mark: str) -> None:
    """As `claim`, and empties it.

    Raises:
        DemoFailed: if the folder holds something and has no mark.
    """
    claim(folder, mark)
    shutil.rmtree(folder, ignore_errors=True)
    claim(folder, mark)
