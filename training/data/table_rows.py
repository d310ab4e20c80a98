"""The rows of a list: JSONL, CSV or TSV, as records by column."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError

TABLE_KINDS = (".jsonl", ".csv", ".tsv")


def table_rows(path: Path, *, what: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line numbers and rows.

    Args:
        path: A `.jsonl`, `.csv` or `.tsv` file, UTF-8.
        what: It is called in messages, such as "captions file".

    Raises:
        DataError: if the file is missing, of another kind, not UTF-8, or a line is no record.
    """
    if not path.is_file():
        raise DataError(f"no {what} at {path}")
    kind = path.suffix.lower()
    if kind not in TABLE_KINDS:
        raise DataError(f"{path} is not a {what} we read ({', '.join(TABLE_KINDS)})")
    try:
        with path.open(encoding="utf-8-sig", newline="" if kind != ".jsonl" else None) as file:
            if kind == ".jsonl":
                yield from ((number, _parse(line, path, number)) for number, line in enumerate(file, 1) if line.strip())
            else:
                yield from enumerate(csv.DictReader(file, delimiter="," if kind == ".csv" else "\t"), 2)
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text") from None
    except csv.Error as error:
        raise DataError(f"{path} is not readable as {kind[1:].upper()}: {error}") from None


def lacks(path: Path, number: int, column: str, record: Mapping[str, Any]) -> str:
    """What to say of a row without a value in `column`."""
    if column in record:
        return f"{path}, line {number}: {column} is empty"
    known = ", ".join(str(name) for name in record) or "none"
    return f"{path}, line {number} has no column {column!r}; its columns are: {known}"


def _parse(line: str, path: Path, number: int) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {number} is not JSON: {error.msg}") from None
    except ValueError:  # Python reads integers of 4300 digits, no longer ones
        raise DataError(f"{path}, line {number} holds a number that is too long") from None
    except RecursionError:
        raise DataError(f"{path}, line {number} is nested too deeply") from None
    if not isinstance(record, dict):
        raise DataError(f"{path}, line {number} is not a JSON object")
    return record
