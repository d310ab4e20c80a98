"""Which pictures there are, before any is read: what folders, lists and shards have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from twinlens.training.data.errors import DataError

CLASSES_FILE = "classes.json"


@dataclass(frozen=True, slots=True)
class ListedPicture:
    """Where one picture's bytes are.

    Attributes:
        name: What a person calls it.
        label: Its class: a name, or a number in digits; None where unknown.
        file: The picture's file, or the shard it lies in.
        offset: Where its bytes begin in the file.
        size: How many they are; None: to the end.
        data: The bytes themselves, where they came with the list.
    """

    name: str
    label: str | None
    file: Path
    offset: int = 0
    size: int | None = None
    data: bytes | None = None

    def read(self) -> bytes:
        """The picture's bytes.

        Raises:
            OSError: if the file cannot be read.
            ValueError: if no file can have this name.
        """
        if self.data is not None:
            return self.data
        with self.file.open("rb") as file:
            file.seek(self.offset)
            return file.read() if self.size is None else file.read(self.size)


@dataclass(frozen=True, slots=True)
class PictureListing:
    """All pictures of a source.

    Attributes:
        pictures: In a fixed order.
        class_names: What the numbers among the labels mean, by position; None where nothing says it.
    """

    pictures: list[ListedPicture]
    class_names: tuple[str, ...] | None = None


def known_label(text: str) -> str | None:
    """A label as it is written in a list or a shard; empty or -1 where unknown."""
    label = text.strip()
    return None if label in {"", "-1"} else label


def class_names_beside(*folders: Path) -> tuple[str, ...] | None:
    """The names in the first `classes.json` among the folders; None where there is none.

    Raises:
        DataError: if the file is not a JSON list of names that differ.
    """
    for folder in folders:
        path = folder / CLASSES_FILE
        if path.is_file():
            try:
                names = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"{path} cannot be read as JSON: {error}") from None
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                raise DataError(f"{path} must be a JSON list of class names")
            if len(set(names)) < len(names):
                raise DataError(f"{path} names a class twice")
            return tuple(names)
    return None
