"""Reads captions files: JSONL, CSV or TSV rows of (image, caption[, id])."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError
from twinlens.training.data.table_rows import lacks, table_rows


@dataclass(frozen=True, slots=True)
class CaptionColumns:
    """Which columns hold what; without an `id` column (None) ids are made from the image's path."""

    image: str = "image"
    caption: str = "caption"
    id: str | None = None


@dataclass(frozen=True, slots=True)
class CaptionRow:
    """A picture and one caption of it.

    Attributes:
        id: Ties the row to an item of a collection and to mined negatives.
        image: The picture's file.
        caption: A true sentence about it.
    """

    id: str
    image: Path
    caption: str


def read_captions(
    path: Path, columns: CaptionColumns | None = None, *, images: Path | None = None, limit: int | None = None
) -> list[CaptionRow]:
    """Reads every row.

    Args:
        path: A `.jsonl`, `.csv` or `.tsv` file. A JSONL caption may be a list: one row each.
        columns: Their names. Without an id column the `id` column is used where there is one, else the image's path
            as written (`path#1`, `path#2`, … for a picture's further captions).
        images: The folder that relative image paths start from; default: the file's own.
        limit: Read at most so many rows.

    Raises:
        DataError: if the file is missing, empty or of an unknown kind, a column is unknown, a row is broken, or two
            rows have one id.
    """
    columns = columns or CaptionColumns()
    root = images if images is not None else path.parent
    rows: list[CaptionRow] = []
    made: Counter[str] = Counter()
    for number, record in table_rows(path, what="captions file"):
        image, captions = _value(record, columns.image, path, number), _captions(record, columns, path, number)
        given = _given_id(record, columns, path, number)
        for k, caption in enumerate(captions):
            identity = given + (f"#{k}" if k else "") if given else _made_id(image, made)
            rows.append(CaptionRow(identity, root / image, caption))
        if limit is not None and len(rows) >= limit:
            rows = rows[:limit]
            break
    if not rows:
        raise DataError(f"{path} holds no rows")
    twice = [identity for identity, count in Counter(row.id for row in rows).items() if count > 1]
    if twice:
        raise DataError(f"{path} holds the id {twice[0]!r} more than once")
    return rows


def _given_id(record: Mapping[str, Any], columns: CaptionColumns, path: Path, number: int) -> str:
    """The row's id as text; empty where it has none and needs none."""
    given = record.get(columns.id or "id")
    if given is None or given == "":
        if columns.id is not None:
            raise DataError(lacks(path, number, columns.id, record))
        return ""
    if not isinstance(given, str | int) or isinstance(given, bool):
        raise DataError(f"{path}, line {number}: {columns.id or 'id'} must be a text or a whole number")
    return str(given)


def _made_id(image: str, made: Counter[str]) -> str:
    count = made[image]
    made[image] += 1
    return image if count == 0 else f"{image}#{count}"


def _value(record: Mapping[str, Any], column: str, path: Path, number: int) -> str:
    value = record.get(column)
    if value is None:
        raise DataError(lacks(path, number, column, record))
    if not isinstance(value, str) or not value:
        raise DataError(f"{path}, line {number}: {column} must be a text that is not empty")
    return value


def _captions(record: Mapping[str, Any], columns: CaptionColumns, path: Path, number: int) -> list[str]:
    value = record.get(columns.caption)
    if isinstance(value, list) and value:
        return [_value({columns.caption: one}, columns.caption, path, number) for one in value]
    return [_value(record, columns.caption, path, number)]
