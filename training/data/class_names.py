"""From labels as they are written, names or numbers, to classes in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import UNLABELLED


def number_labels(
    labels: Sequence[str | None], names: Sequence[str] | None = None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Classes, and each label's position among them.

    Args:
        labels: Names, numbers in digits, or None where unknown.
        names: What numbers mean, by position (a label may also be one of the names); None: a number is a name.

    Returns:
        The classes in the order of `names`, else sorted, numbers by their value; and int64 of shape (n,), -1 where
        unknown.

    Raises:
        DataError: if a label is not among `names`.
    """
    named = [None if label is None else _name(label, names) for label in labels]
    found = {label for label in named if label is not None}
    if names is not None and found:
        classes = tuple(names)
    else:
        by_value = all(label.isdecimal() for label in found)
        classes = tuple(sorted(found, key=lambda label: (int(label), label) if by_value else (0, label)))
    position = {name: i for i, name in enumerate(classes)}
    numbers = [UNLABELLED if label is None else position[label] for label in named]
    return classes, np.array(numbers, dtype=np.int64)


def _name(label: str, names: Sequence[str] | None) -> str:
    if names is None or label in names:
        return label
    if label.isdecimal() and int(label) < len(names):
        return names[int(label)]
    some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    raise DataError(f"the label {label!r} is not among the {len(names)} classes {some}")
