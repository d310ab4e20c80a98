"""A text or a picture of a row, or an error that names the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.parquet_rows import parquet_rows
from twinlens.training.data.picture_tables import picture_in
from twinlens.training.data.table_rows import lacks, table_rows


def rows_of(path: Path, columns: tuple[str, ...], *, what: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line numbers and rows of a list.

    Args:
        path: A `.jsonl`, `.csv`, `.tsv` or `.parquet` file.
        columns: All that may be wanted; of Parquet no others are read.
        what: It is called in messages.

    Raises:
        DataError: if the file is missing, of another kind, or broken.
    """
    if path.suffix.lower() == ".parquet":
        return parquet_rows(path, needed=(), wanted=columns, what=what)
    return table_rows(path, what=what)


def row_text(row: Mapping[str, Any], column: str, path: Path, number: int) -> str:
    """The text in a column.

    Args:
        row: By column.
        column: Which.
        path: The file, for the message.
        number: Of the line, for the message.

    Raises:
        DataError: if there is none, or it is empty.
    """
    value = row.get(column)
    if value is None or value == "":
        raise DataError(lacks(path, number, column, row))
    if not isinstance(value, str):
        raise DataError(f"{path}, line {number}: {column} must be a text")
    return value


def row_picture(row: Mapping[str, Any], column: str, path: Path, number: int, root: Path) -> ListedPicture:
    """The picture in a column: a path, or in Parquet the encoded bytes or a struct of `bytes` and `path`.

    Args:
        row: By column.
        column: Which.
        path: The file, for the message.
        number: Of the line, for the message.
        root: Where relative paths start from.

    Raises:
        DataError: if there is none, or something that is none.
    """
    name, data = picture_in(row, column, path, number)
    if data is None:
        return ListedPicture(name, None, root / name)
    # A row may hold several, and they are told apart by name.
    return ListedPicture(f"{name}, {column}", None, path, data=data)
