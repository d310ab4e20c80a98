"""Pairs out of labelled pictures: captions are templates around the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from twinlens.training.data.class_names import number_labels
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import ListedPairs
from twinlens.training.data.picture_set import UNLABELLED, WHERE_CLASSES_STAND
from twinlens.training.data.picture_sources import list_pictures
from twinlens.training.data.picture_tables import PictureColumns
from twinlens.training.evaluation.prompt_templates import fill


def list_class_pairs(
    path: Path,
    templates: Sequence[str],
    *,
    columns: PictureColumns | None = None,
    images: Path | None = None,
) -> ListedPairs:
    """Every labelled picture is a pair, with the caption of each template to choose from.

    Underscores in the names of classes are read as spaces.

    Args:
        path: See `list_pictures`.
        templates: Each with a place for the name of the class.
        columns: Of a list.
        images: The folder that relative paths of a list start from.

    Raises:
        DataError: if there are no pictures, or none has a class, or all have the same.
    """
    listing = list_pictures(path, columns=columns, images=images)
    if not listing.pictures:
        raise DataError(f"there are no pictures in {path}")
    classes, numbers = number_labels([picture.label for picture in listing.pictures], listing.class_names)
    labelled = np.flatnonzero(numbers != UNLABELLED)
    if not len(labelled):
        raise DataError(f"the pictures in {path} have no classes to make captions of: {WHERE_CLASSES_STAND}")
    if len(np.unique(numbers[labelled])) == 1:
        only = classes[numbers[labelled[0]]]
        raise DataError(f"all pictures in {path} are of the class {only!r}: captions must tell them apart")
    names = [name.replace("_", " ") for name in classes]
    count = len(templates)
    return ListedPairs(
        ids=tuple(listing.pictures[row].name for row in labelled),
        pictures=tuple(listing.pictures[row] for row in labelled),
        captions=tuple(fill(template, name) for name in names for template in templates),
        caption_ids=(),
        first_captions=numbers[labelled] * count,
        caption_counts=np.full(len(labelled), count),
        classes=numbers[labelled],
        problems=tuple((listing.pictures[row].name, "has no class") for row in np.flatnonzero(numbers == UNLABELLED)),
    )
