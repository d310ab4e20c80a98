"""Reads pictures to choose between: two with two captions (Winoground), or two with one (NLVR)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.evaluation.bundles.row_values import row_picture, row_text, rows_of

_TWO = ("image_0", "image_1", "caption_0", "caption_1")
_ONE = ("caption", "image_true", "image_false")


@dataclass(frozen=True, slots=True)
class PicturePair:
    """Two pictures, and one caption of the first or one of each.

    Attributes:
        pictures: Where they are.
        captions: Of the first alone, or of both.
    """

    pictures: tuple[ListedPicture, ListedPicture]
    captions: tuple[str, ...]


def read_picture_pairs(path: Path, *, images: Path | None = None) -> list[PicturePair]:
    """Reads every row; all have one form.

    Args:
        path: A `.jsonl`, `.csv`, `.tsv` or `.parquet` file of `image_0`, `image_1`, `caption_0`, `caption_1`
            (caption i is true of picture i alone), or of `caption`, `image_true`, `image_false`.
        images: The folder that relative paths start from; None: the file's own.

    Raises:
        DataError: if the file is missing or empty, or a row is broken.
    """
    root = images if images is not None else path.parent
    found: list[PicturePair] = []
    for number, row in rows_of(path, (*_TWO, *_ONE), what="file of pairs of pictures"):
        two = any(column in row for column in _TWO)
        images_of, captions_of = (_TWO[:2], _TWO[2:]) if two else (_ONE[1:], _ONE[:1])
        first, second = (row_picture(row, column, path, number, root) for column in images_of)
        pair = PicturePair((first, second), tuple(row_text(row, column, path, number) for column in captions_of))
        if found and len(found[0].captions) != len(pair.captions):
            raise DataError(f"{path}, line {number}: rows of one caption and rows of two cannot be in one file")
        found.append(pair)
    if not found:
        raise DataError(f"{path} holds no rows")
    return found
