"""Reads captions files: JSONL, CSV, TSV or Parquet rows of (image, caption[, id, wrong captions, weight, label])."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import CaptionedPicture
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.pair_weight import pair_weight
from twinlens.training.data.parquet_rows import parquet_rows
from twinlens.training.data.picture_tables import label_in, picture_in
from twinlens.training.data.table_rows import lacks, table_rows

_WHAT = "captions file"
_LONGEST_TOLD = 100


@dataclass(frozen=True, slots=True)
class CaptionColumns:
    """Which columns hold what.

    Attributes:
        image: The picture.
        caption: What is true of it.
        id: Names the row; None: `id` where there is one, else names are made from the image's path.
        wrong: Captions that are false of the picture; None: none.
        weight: How much the row counts; None: all alike.
        label: The class of the picture; None: none.
    """

    image: str = "image"
    caption: str = "caption"
    id: str | None = None
    wrong: str | None = None
    weight: str | None = None
    label: str | None = None


def read_captions(
    path: Path, columns: CaptionColumns | None = None, *, images: Path | None = None, limit: int | None = None
) -> list[CaptionedPicture]:
    """Reads every row.

    Args:
        path: A `.jsonl`, `.csv`, `.tsv` or `.parquet` file. A caption may be a list, where the kind of file has lists:
            one row each; wrong captions may be a list, or an object whose values they are. In Parquet the image may be
            the encoded bytes, or a struct of `bytes` and `path`; such bytes stay in memory until they are decoded.
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
    rows: list[CaptionedPicture] = []
    made: Counter[str] = Counter()
    for number, record in _records(path, columns):
        picture = _picture(record, columns, path, number, root)
        captions = _captions(record, columns, path, number)
        wrong = () if columns.wrong is None else _wrong(record, columns.wrong, path, number)
        weight = 1.0 if columns.weight is None else _weight(record, columns.weight, path, number)
        label = None if columns.label is None else _label(record, columns.label, path, number)
        given = _given_id(record, columns, path, number)
        for k, caption in enumerate(captions):
            identity = given + (f"#{k}" if k else "") if given else _made_id(_written(record, columns, picture), made)
            rows.append(CaptionedPicture(identity, picture, caption, wrong, weight, label))
        if limit is not None and len(rows) >= limit:
            rows = rows[:limit]
            break
    if not rows:
        raise DataError(f"{path} holds no rows")
    twice = [identity for identity, count in Counter(row.id for row in rows).items() if count > 1]
    if twice:
        raise DataError(f"{path} holds the id {twice[0]!r} more than once")
    if not any(row.weight for row in rows):
        raise DataError(f"{path}: every {columns.weight} is 0")
    return rows


def _records(path: Path, columns: CaptionColumns) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix.lower() != ".parquet":
        return table_rows(path, what=_WHAT)
    named = [columns.id, columns.wrong, columns.weight, columns.label]
    needed = [columns.image, columns.caption, *(name for name in named if name is not None)]
    return parquet_rows(path, needed=needed, wanted=["id"] if columns.id is None else [], what=_WHAT)


def _picture(record: Mapping[str, Any], columns: CaptionColumns, path: Path, number: int, root: Path) -> ListedPicture:
    if path.suffix.lower() != ".parquet":
        name, data = _text(record, columns.image, path, number), None
    else:
        name, data = picture_in(record, columns.image, path, number)
    if data is not None:
        return ListedPicture(name, None, path, data=data)
    file = root / name
    return ListedPicture(str(file.relative_to(root)) if file.is_relative_to(root) else name, None, file)


def _written(record: Mapping[str, Any], columns: CaptionColumns, picture: ListedPicture) -> str:
    value = record[columns.image]
    return value if isinstance(value, str) else picture.name


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


def _text(record: Mapping[str, Any], column: str, path: Path, number: int) -> str:
    value = record.get(column)
    if value is None:
        raise DataError(lacks(path, number, column, record))
    if not isinstance(value, str) or not value:
        raise DataError(f"{path}, line {number}: {column} must be a text that is not empty")
    return value


def _captions(record: Mapping[str, Any], columns: CaptionColumns, path: Path, number: int) -> list[str]:
    value = record.get(columns.caption)
    if isinstance(value, list) and value:
        return [_text({columns.caption: one}, columns.caption, path, number) for one in value]
    return [_text(record, columns.caption, path, number)]


def _wrong(record: Mapping[str, Any], column: str, path: Path, number: int) -> tuple[str, ...]:
    if column not in record:
        raise DataError(lacks(path, number, column, record))
    value = record[column]
    if value is None or value == "":
        return ()
    several = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(_text({column: one}, column, path, number) for one in several))


def _label(record: Mapping[str, Any], column: str, path: Path, number: int) -> str | None:
    if column not in record:
        raise DataError(lacks(path, number, column, record))
    return label_in(record[column], column, path, number)


def _weight(record: Mapping[str, Any], column: str, path: Path, number: int) -> float:
    value = record.get(column)
    if value is None or value == "":
        raise DataError(lacks(path, number, column, record))
    weight = pair_weight(value)
    if weight is None:
        found = repr(value) if len(str(value)) < _LONGEST_TOLD else "a longer one"
        raise DataError(f"{path}, line {number}: {column} must be a number from 0, found {found}")
    return weight
