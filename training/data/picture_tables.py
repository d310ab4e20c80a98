"""Lists the pictures that a table names: JSONL, CSV, TSV or Parquet rows of (image[, label])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.client.example_files import known_label
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import (
    ListedPicture,
    PictureListing,
    class_names_beside,
    problem_of_class,
)
from twinlens.training.data.parquet_rows import parquet_rows
from twinlens.training.data.table_rows import TABLE_KINDS, lacks, table_rows

LIST_KINDS = frozenset({*TABLE_KINDS, ".parquet"})


@dataclass(frozen=True, slots=True)
class PictureColumns:
    """Which columns hold what; a table without a column `label` has pictures without classes."""

    image: str = "image"
    label: str = "label"


def list_table(path: Path, columns: PictureColumns | None = None, *, images: Path | None = None) -> PictureListing:
    """Every row's picture; a row that names a picture again is left out.

    Args:
        path: The table. In Parquet the image may also be the encoded bytes, or a struct of `bytes` and `path`, as
            data sets of Hugging Face have it; such bytes stay in memory until they are decoded.
        columns: Their names. A label is a name or a whole number; empty, null or -1 where unknown.
        images: The folder that relative paths start from; default: the table's own.

    Raises:
        DataError: if the table is missing or broken, a row lacks its image or names a picture twice with two labels, or
            no row has a label's column that is not called `label`.
    """
    columns = columns or PictureColumns()
    root = images if images is not None else path.parent
    if path.suffix.lower() == ".parquet":
        rows = parquet_rows(path, needed=[columns.image], wanted=[columns.label], what="list of pictures")
    else:
        rows = table_rows(path, what="list of pictures")
    listed: dict[str, ListedPicture] = {}
    labelled = columns.label == PictureColumns().label
    for number, row in rows:
        labelled |= columns.label in row
        picture = _picture(row, columns, path, number, root)
        known = listed.setdefault(picture.name, picture)
        if known.label != picture.label:
            raise DataError(
                f"{path}, line {number}: {picture.name} is {known.label!r} above and {picture.label!r} here"
            )
    if listed and not labelled:
        raise DataError(f"{path} has no column {columns.label!r} for the classes")
    names = class_names_beside(path.parent)
    return PictureListing(list(listed.values()), names, labels_from=f"the column {columns.label!r} of {path.name}")


def _picture(row: Mapping[str, Any], columns: PictureColumns, path: Path, number: int, root: Path) -> ListedPicture:
    label = label_in(row.get(columns.label), columns.label, path, number)
    name, data = picture_in(row, columns.image, path, number)
    return ListedPicture(name, label, path if data is not None else root / name, data=data)


def picture_in(row: Mapping[str, Any], column: str, path: Path, number: int) -> tuple[str, bytes | None]:
    """What a row says of its picture.

    Returns:
        The path as written, and None; or where the row holds the picture itself, what to call it and its bytes.

    Raises:
        DataError: if the row has no picture, or something that is none.
    """
    value: Any = row.get(column)
    if value is None or value == "":
        raise DataError(lacks(path, number, column, row))
    data = None
    if isinstance(value, dict):
        data, value = value.get("bytes"), value.get("path")
        if isinstance(data, bytes):
            # The path beside the bytes is often but the last part of one, the same for other rows.
            value = f"row {number} ({value})" if value else f"row {number}"
    elif isinstance(value, bytes):
        value, data = f"row {number}", value
    if not isinstance(value, str) or not isinstance(data, bytes | None):
        raise DataError(f"{path}, line {number}: {column} must be the path of a picture")
    return value, data


def label_in(value: Any, column: str, path: Path, number: int) -> str | None:
    """The class that a row names; None where unknown.

    Raises:
        DataError: if it can be no class.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{path}, line {number}: {column} must be a text or a whole number, found {value!r}")
    label = str(value)
    if problem := problem_of_class(label):
        raise DataError(f"{path}, line {number}: {column} {problem}")
    return known_label(label)
