"""The pictures of a run, decoded once through the contract of serving."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNLABELLED = -1
WHERE_CLASSES_STAND = "put them in one folder per class, or name a list with labels"
_CLASSES_NAMED = 5


@dataclass(frozen=True)
class PictureSet:
    """Pictures of one size, some or all of them with a class.

    Attributes:
        pixels_nhwc: uint8, shape (m, side, side, 3).
        labels: int64, shape (m,): positions in `classes`, -1 where unknown.
        classes: The names of the classes; empty where nothing is labelled.
        names: What a person calls each picture: its path, or its key in a shard.
        digests: SHA-256 of each file's bytes.
        unreadable: What was left out, and why.
        labels_from: What the classes were taken from, in a person's words.
    """

    pixels_nhwc: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    names: tuple[str, ...]
    digests: tuple[str, ...]
    unreadable: dict[str, str]
    labels_from: str = ""

    def __len__(self) -> int:
        """How many pictures."""
        return len(self.labels)

    @property
    def labelled(self) -> bool:
        """Whether every picture has a class."""
        return bool(len(self.labels)) and not self.unlabelled

    @property
    def unlabelled(self) -> int:
        """How many pictures have no class."""
        return int((self.labels == UNLABELLED).sum())

    def digest(self) -> str:
        """SHA-256 over the pictures and their classes, in order."""
        parts = hashlib.sha256()
        for digest, label in zip(self.digests, self.labels.tolist(), strict=True):
            name = self.classes[label] if label != UNLABELLED else ""
            parts.update(f"{digest} {name}\n".encode())
        return parts.hexdigest()


def classes_found(pictures: PictureSet) -> str | None:
    """A line for a person on the classes: folders of pictures may be albums as well. None where there are none."""
    if not pictures.classes:
        return None
    named = ", ".join(pictures.classes[:_CLASSES_NAMED])
    more = len(pictures.classes) - _CLASSES_NAMED
    rest = f" and {more:,} more" if more > 0 else ""
    without = f"; {pictures.unlabelled:,} of {len(pictures):,} pictures have none" if pictures.unlabelled else ""
    return f"classes: {named}{rest} ({pictures.labels_from}){without}"


def left_out(unreadable: Mapping[str, str], kind: str = "unusable") -> list[str]:
    """A line for a person on pictures that were left out, with the first of them; nothing where there are none.

    Args:
        unreadable: What was left out, and why.
        kind: What such pictures are called.
    """
    if not unreadable:
        return []
    first, reason = next(iter(unreadable.items()))
    return [f"left out {len(unreadable)} {kind} picture(s); the first is {first}: {reason}"]
