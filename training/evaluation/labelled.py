"""Pictures with known classes, as every measure here takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import UNLABELLED, WHERE_CLASSES_STAND, PictureSet


@dataclass(frozen=True)
class Labelled:
    """Pictures whose class is known.

    Attributes:
        pixels_nhwc: uint8, shape (n, side, side, 3).
        labels: int64, shape (n,): positions in `classes`.
        classes: Their names; two or more.
        names: What a person calls each picture.
    """

    pixels_nhwc: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        """How many pictures."""
        return len(self.labels)

    def taken(self, rows: NDArray[np.integer]) -> Labelled:
        """Only these rows, in this order."""
        names = tuple(self.names[row] for row in rows.tolist())
        return Labelled(self.pixels_nhwc[rows], self.labels[rows], self.classes, names)


def labelled(pictures: PictureSet, classes: tuple[str, ...] | None = None) -> Labelled:
    """The pictures of a set that have a class.

    Args:
        pictures: Some of them labelled.
        classes: Count in these classes, as pictures are judged by others; None: in the set's own.

    Raises:
        DataError: if none is labelled, there is one class only, or a class is not among `classes`.
    """
    rows = np.flatnonzero(pictures.labels != UNLABELLED)
    if not len(rows):
        example = f", {pictures.names[0]} for one" if pictures.names else ""
        raise DataError(f"no picture has a class{example}: {WHERE_CLASSES_STAND}")
    own = pictures.classes
    wanted = own if classes is None else classes
    if len(wanted) < 2:
        raise DataError(f"all pictures are of one class ({wanted[0]}): there is nothing to tell apart")
    strange = sorted({own[label] for label in pictures.labels[rows].tolist()} - set(wanted))
    if strange:
        known = ", ".join(wanted[:5]) + (" …" if len(wanted) > 5 else "")
        raise DataError(f"the class {strange[0]!r} is not among those of the training pictures ({known})")
    position = np.array([wanted.index(name) if name in wanted else UNLABELLED for name in own], dtype=np.int64)
    names = tuple(pictures.names[row] for row in rows.tolist())
    return Labelled(pictures.pixels_nhwc[rows], position[pictures.labels[rows]], wanted, names)


def stratified(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Rows of a random share of every class, at least one each, in rising order.

    Args:
        labels: int64, shape (n,).
        share: In (0, 1].
        seed: Of the choice; a larger share of the same seed contains a smaller one.

    Raises:
        ValueError: if the share is out of range.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    chosen = []
    for label in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == label)
        order = np.random.default_rng((seed, label)).permutation(rows)
        chosen.append(order[: max(1, round(share * len(rows)))])
    return np.sort(np.concatenate(chosen))
