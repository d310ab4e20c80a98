"""The folder a bundle is to go to."""

from __future__ import annotations

from pathlib import Path

from twinlens.training.export.errors import ExportError


def check_destination(destination: Path) -> None:
    """Refuses early, before minutes of work, a folder that is not a bundle.

    Raises:
        ExportError: if `destination` is a file, or a folder with other things in it.
    """
    if destination.exists() and not destination.is_dir():
        raise ExportError(f"{destination} is a file; name a new folder")
    if destination.is_dir() and any(destination.iterdir()) and not (destination / "bundle.json").is_file():
        raise ExportError(f"{destination} is not empty and holds no bundle; name a new folder")
