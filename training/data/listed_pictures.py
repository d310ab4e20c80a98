"""Which pictures there are, before any is read: what folders, lists and shards have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from twinlens.training.data.errors import DataError
from twinlens.training.data.regular_file import open_regular
from twinlens.training.errors import first_line

CLASSES_FILE = "classes.json"
LONGEST_CLASS = 1000


class Picture(Protocol):
    """A picture that is yet to be read; equal ones are one picture."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    def read(self) -> bytes:
        """The picture's bytes.

        Raises:
            OSError: if it cannot be read.
        """
        ...


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
            OSError: if the file cannot be read, or is none.
            ValueError: if no file can have this name.
        """
        if self.data is not None:
            return self.data
        with open_regular(self.file) as file:
            file.seek(self.offset)
            return file.read() if self.size is None else file.read(self.size)


@dataclass(frozen=True, slots=True)
class PictureListing:
    """All pictures of a source.

    Attributes:
        pictures: In a fixed order.
        class_names: What the numbers among the labels mean, by position; None where nothing says it.
        labels_from: What the labels were taken from, in a person's words.
    """

    pictures: list[ListedPicture]
    class_names: tuple[str, ...] | None = None
    labels_from: str = ""


def problem_of_class(name: str) -> str | None:
    """Why a text cannot name a class; None where it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character"
    return f"has {len(name):,} characters, more than {LONGEST_CLASS:,}" if len(name) > LONGEST_CLASS else None


def class_names_beside(*folders: Path) -> tuple[str, ...] | None:
    """The names in the first `classes.json` among the folders; None where there is none.

    Raises:
        DataError: if the file is not a JSON list of names that differ and can be names.
    """
    for folder in folders:
        path = folder / CLASSES_FILE
        if path.is_file():
            try:
                names = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise DataError(f"{path} cannot be read as JSON: {first_line(error)}") from None
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                raise DataError(f"{path} must be a JSON list of class names")
            if len(set(names)) < len(names):
                raise DataError(f"{path} names a class twice")
            if problem := next(filter(None, map(problem_of_class, names)), None):
                raise DataError(f"{path}: a class {problem}")
            return tuple(names)
    return None
