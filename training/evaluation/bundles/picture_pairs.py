"""Reads pictures to choose between: two with two captions (Winoground), or two with one (NLVR)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinlens.training.data.errors import DataError
from twinlens.training.data.table_rows import table_rows
from twinlens.training.evaluation.bundles.row_text import row_text

_TWO = ("image_0", "image_1", "caption_0", "caption_1")
_ONE = ("caption", "image_true", "image_false")


@dataclass(frozen=True, slots=True)
class PicturePair:
    """Two pictures, and one caption of the first or one of each.

    Attributes:
        names: What a person calls the pictures.
        images: Their files.
        captions: Of the first alone, or of both.
    """

    names: tuple[str, str]
    images: tuple[Path, Path]
    captions: tuple[str, ...]


def read_picture_pairs(path: Path, *, images: Path | None = None) -> list[PicturePair]:
    """Reads every row; all have one form.

    Args:
        path: A `.jsonl`, `.csv` or `.tsv` file of `image_0`, `image_1`, `caption_0`, `caption_1` (caption i is true of
            picture i alone), or of `caption`, `image_true`, `image_false`.
        images: The folder that relative paths start from; None: the file's own.

    Raises:
        DataError: if the file is missing or empty, or a row is broken.
    """
    root = images if images is not None else path.parent
    found: list[PicturePair] = []
    for number, row in table_rows(path, what="file of pairs of pictures"):
        two = any(column in row for column in _TWO)
        values = [row_text(row, column, path, number) for column in (_TWO if two else _ONE)]
        if two:
            first, second, *captions = values
        else:
            captions, (first, second) = values[:1], values[1:]
        pair = PicturePair((first, second), (root / first, root / second), tuple(captions))
        if found and len(found[0].captions) != len(pair.captions):
            raise DataError(f"{path}, line {number}: rows of one caption and rows of two cannot be in one file")
        found.append(pair)
    if not found:
        raise DataError(f"{path} holds no rows")
    return found
