"""Examples of labels as files: a folder with a sub-folder a label, or a list of pictures with their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.sniff import is_image
from twinlens.client.sources import JSON_LINES, FoundImage, Skipped, check_readable, portable, read_jsonl, walk_images

# A data set's own list: a folder that has one is read by it, as training does.
LIST_IN_FOLDER = "labels.jsonl"
_FORMS = "a folder with a sub-folder for each label, or a .jsonl list whose rows have `image` and `label`"


@dataclass(frozen=True, slots=True)
class ExampleFiles:
    """Which pictures show which label.

    Attributes:
        pictures: The pictures of each label, in a fixed order.
        notes: What was left out, a line each.
    """

    pictures: Mapping[str, Sequence[FoundImage]]
    notes: tuple[str, ...]


def find_examples(path: Path, skipped: Skipped) -> ExampleFiles:
    """The pictures of each label; none of them is read yet.

    Args:
        path: A folder with a sub-folder for each label, read recursively; one with a `labels.jsonl`; or such a list.
        skipped: Counts files that are no pictures.

    Raises:
        TwinlensError: NOT_FOUND if there is no such thing, INVALID_ARGUMENT if it shows no label.
    """
    if not path.exists():
        raise TwinlensError("NOT_FOUND", f"no such folder or list: {path}")
    if path.is_dir():
        listed = path / LIST_IN_FOLDER
        return _of_list(listed) if listed.is_file() else _of_folder(path, skipped)
    if path.suffix.lower() not in JSON_LINES:
        raise invalid(f"{path} is not a folder: examples are {_FORMS}")
    return _of_list(path)


def known_label(text: str) -> str | None:
    """A label as it is written in a list or a shard; None where it is unknown: empty or -1."""
    label = text.strip()
    return None if label in {"", "-1"} else label


def _of_folder(folder: Path, skipped: Skipped) -> ExampleFiles:
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
        raise invalid(f"no pictures in sub-folders of {folder}: examples are {_FORMS}")
    notes = [f"pictures that lie in no sub-folder of the examples, and so have no label: {loose:,}"] if loose else []
    notes += [f"no pictures in sub-folder {label}: it is no label" for label in empty]
    return ExampleFiles(found, tuple(notes))


def _of_list(path: Path) -> ExampleFiles:
    check_readable(path)
    found: dict[str, dict[Path, FoundImage]] = {}
    notes: list[str] = []
    unlabelled = 0
    for row in read_jsonl(path):
        label = _label(row.metadata.get("label"))
        if row.error:
            notes.append(f"not used as an example: {row.id}: {row.error}")
        elif label is None or row.image is None:
            unlabelled += 1
        else:  # a row that names a picture again says nothing new
            found.setdefault(label, {})[row.image] = FoundImage(row.image, row.id)
    if not found:
        raise invalid(f"no row of {path} has both `image` and `label`: examples are {_FORMS}")
    if unlabelled:
        notes.append(f"rows of {path.name} without an image or a label: {unlabelled:,}")
    return ExampleFiles({label: list(pictures.values()) for label, pictures in found.items()}, tuple(notes))


def _label(value: Any) -> str | None:
    """A label as lists have it: a name or a whole number; empty, null or -1 where unknown."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return known_label(str(value))
