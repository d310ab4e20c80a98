"""A folder of examples: a sub-folder a label, with its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.sniff import is_image
from twinlens.client.sources import FoundImage, Skipped, portable, walk_images


@dataclass(frozen=True, slots=True)
class ExampleFolder:
    """What a folder of examples holds.

    Attributes:
        pictures: The pictures of each label, sorted by name.
        empty: Sub-folders without pictures, which are no labels.
        loose: How many pictures lie in no sub-folder, and so have no label.
    """

    pictures: Mapping[str, Sequence[FoundImage]]
    empty: tuple[str, ...]
    loose: int


def read_example_folder(folder: Path, skipped: Skipped) -> ExampleFolder:
    """The pictures of each sub-folder, read recursively. Hidden ones are passed over.

    Args:
        folder: Where the sub-folders lie.
        skipped: Counts files that are no pictures.

    Raises:
        TwinlensError: NOT_FOUND if there is no such folder, INVALID_ARGUMENT if there are no pictures in sub-folders.
    """
    if not folder.exists():
        raise TwinlensError("NOT_FOUND", f"no such folder: {folder}")
    if not folder.is_dir():
        raise invalid(f"{folder} is not a folder: examples are a folder with a sub-folder for each label")
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise TwinlensError("PERMISSION_DENIED", f"cannot open the folder {folder}: {error.strerror}") from None
    found: dict[str, list[FoundImage]] = {}
    empty: list[str] = []
    loose = 0
    for path in paths:
        if not path.is_dir():
            is_loose = path.is_file() and is_image(path)
            loose += is_loose
            skipped.files += not is_loose
            continue
        label = portable(path.name)
        pictures = [FoundImage(each.path, f"{label}/{each.id}") for each in walk_images(path, skipped)]
        if pictures:
            found[label] = pictures
        else:
            empty.append(label)
    if not found:
        raise invalid(f"no pictures in sub-folders of {folder}: examples are a folder with a sub-folder for each label")
    return ExampleFolder(found, tuple(empty), loose)
