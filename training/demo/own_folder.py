"""Folders that the demos make anew: their own, never someone else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from twinlens.training.demo.failed import DemoFailed


def make_anew(folder: Path, mark: str) -> None:
    """Empties a folder that an earlier run made, or makes it.

    Args:
        folder: The folder.
        mark: Name of the file in it by which a later run knows it.

    Raises:
        DemoFailed: if the folder holds something and has no mark.
    """
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / mark).is_file())):
        raise DemoFailed(f"{folder} holds something that no earlier demo left there; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / mark).touch()
