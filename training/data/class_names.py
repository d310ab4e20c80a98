"""From labels as they are written, names or numbers, to classes in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import UNLABELLED


def number_labels(
    labels: Sequence[str | None], *, names: Sequence[str] | None = None, classes: Sequence[str] | None = None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Classes, and each label's position among them.

    Args:
        labels: Names, numbers in digits, or None where unknown.
        names: What numbers mean, by position (a label may also be one of the names); None: a number is a name.
        classes: The order to use, for instance that of the training pictures; None: that of `names`, else sorted,
            numbers by their value.

    Returns:
        The classes, and int64 of shape (n,), -1 where unknown.

    Raises:
        DataError: if a label is not among `names` or not among `classes`.
    """
    named = [None if label is None else _name(label, names) for label in labels]
    if classes is None:
        found = {label for label in named if label is not None}
        if names is not None and found:
            classes = tuple(names)
        else:
            by_value = all(label.isdecimal() for label in found)
            classes = tuple(sorted(found, key=lambda label: (int(label), label) if by_value else (0, label)))
    position = {name: i for i, name in enumerate(classes)}
    for label in named:
        if label is not None and label not in position:
            raise DataError(f"the class {label!r} is not among the classes {_some(classes)}")
    numbers = [UNLABELLED if label is None else position[label] for label in named]
    return tuple(classes), np.array(numbers, dtype=np.int64)


def _name(label: str, names: Sequence[str] | None) -> str:
    if names is None or label in names:
        return label
    if label.isdecimal() and int(label) < len(names):
        return names[int(label)]
    raise DataError(f"the label {label!r} is not among the {len(names)} classes {_some(names)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "") if names else "(none)"
