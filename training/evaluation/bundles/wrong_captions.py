"""Reads pictures with a right and a minimally wrong caption each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.errors import first_line
from twinlens.training.evaluation.bundles.row_values import row_picture, row_text, rows_of

_COLUMNS = ("image", "filename", "caption", "negative_caption", "negatives", "type")
_LONGEST_KIND = 80
_WHAT = "file of right and wrong captions"


@dataclass(frozen=True, slots=True)
class WrongCaption:
    """One choice.

    Attributes:
        picture: Where it is.
        caption: True of it.
        negative_caption: Not true of it.
        kind: What the wrong one changes, such as `swap_att`.
    """

    picture: ListedPicture
    caption: str
    negative_caption: str
    kind: str


def read_wrong_captions(path: Path, *, images: Path | None = None) -> list[WrongCaption]:
    """Reads every row.

    Args:
        path: Rows of `image` (or `filename`), `caption`, `negative_caption` or `negatives` (a text; a list of texts:
            one choice each; or an object of type to text) and maybe `type`, as `.jsonl`, `.csv`, `.tsv` or `.parquet`;
            SugarCrepe's `.json`, an object of such rows, whose type is the file's name; or a folder of these.
        images: The folder that relative paths start from; None: the file's own.

    Raises:
        DataError: if there is no such thing, it is empty, or a row is broken.
    """
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix.lower() == ".json")
        if not files:
            raise DataError(f"{path} holds no .json file of right and wrong captions: name a file")
        return [choice for each in files for choice in read_wrong_captions(each, images=images)]
    rows = _json_rows(path) if path.suffix.lower() == ".json" else rows_of(path, _COLUMNS, what=_WHAT)
    root = images if images is not None else path.parent
    choices = [choice for number, row in rows for choice in _choices(row, path, number, root)]
    if not choices:
        raise DataError(f"{path} holds no rows")
    return choices


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if not path.is_file():
        raise DataError(f"no {_WHAT} at {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {first_line(error)}") from None
    rows = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} must be a JSON object or list of rows")
    for number, row in enumerate(rows, 1):
        yield number, {"type": path.stem, **row}


def _choices(row: Mapping[str, Any], path: Path, number: int, root: Path) -> Iterator[WrongCaption]:
    column = "filename" if "image" not in row and "filename" in row else "image"
    picture = row_picture(row, column, path, number, root)
    caption = row_text(row, "caption", path, number)
    column = "negatives" if "negative_caption" not in row and "negatives" in row else "negative_caption"
    wrong = row.get(column)
    kind = str(row.get("type") or "all")
    several = wrong if isinstance(wrong, list) and wrong else [wrong]
    kinds = [(kind, one) for one in several] if not isinstance(wrong, dict) else list(wrong.items())
    for each, one in kinds:
        text = row_text(row if one is None else {column: one}, column, path, number)
        if text == caption:
            raise DataError(f"{path}, line {number}: {column} is the caption itself")
        if len(each) > _LONGEST_KIND:
            raise DataError(f"{path}, line {number}: type has {len(each):,} characters, more than {_LONGEST_KIND}")
        yield WrongCaption(picture, caption, text, each or "all")
