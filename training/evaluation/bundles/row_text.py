"""A text of a row, or an error that names the line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError
from twinlens.training.data.table_rows import lacks


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
