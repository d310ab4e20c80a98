"""The folder a bundle is to go to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinlens.training.export.errors import ExportError
from twinlens.training.made_folder import made_folder


def check_destination(destination: Path) -> None:
    """Refuses early, before minutes of work, a folder that is not a bundle.

    Raises:
        ExportError: if `destination` is a file, or a folder with other things in it.
    """
    if destination.exists() and not destination.is_dir():
        raise ExportError(f"{destination} is a file; name a new folder")
    if destination.is_dir() and any(destination.iterdir()) and not (destination / "bundle.json").is_file():
        raise ExportError(f"{destination} is not empty and holds no bundle; name a new folder")


@contextmanager
def room_beside(destination: Path) -> Iterator[Path]:
    """A folder beside a bundle's, until the block ends; those above it that were made for nothing go again.

    Raises:
        ConfigError: if the folder above cannot be made.
        ExportError: if the disk is full or read-only.
    """
    prefix = f".{destination.name}."
    try:
        with (
            made_folder(destination.parent),
            tempfile.TemporaryDirectory(dir=destination.parent, prefix=prefix, ignore_cleanup_errors=True) as folder,
        ):
            yield Path(folder)
    except OSError as error:  # also of copies into it, which name what they copy
        raise ExportError(f"cannot write {destination}: {error.strerror or error}") from error
