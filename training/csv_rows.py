"""Tables of numbers that grow by a row at a time: metrics.csv, evaluations.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from twinlens.training.data.errors import DataError

# Beyond this not every whole number is a float.
_WHOLE = 2**53


def append_row(path: Path, row: Mapping[str, float]) -> None:
    """Adds a row, and the header before the first; whole numbers are kept, of others six digits.

    Raises:
        DataError: if the file cannot be written.
    """
    fresh = not path.exists()
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if fresh:
                writer.writeheader()
            writer.writerow({name: _written(value) for name, value in row.items()})
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def read_columns(path: Path) -> dict[str, list[float]]:
    """The columns by name, in order; a row that a crash cut short is left out.

    Raises:
        DataError: if the file cannot be read, or holds something else than numbers.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # also where all columns are there: the last number may not be
            lines.pop()
        reader = csv.DictReader(lines)
        rows = [row for row in reader if None not in row and None not in row.values()]
        return {name: [float(row[name]) for row in rows] for name in reader.fieldnames or ()}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} is no table of numbers: {error}") from error


def keep_rows_until(path: Path, step: int) -> None:
    """Drops the rows of later steps, and one that a crash cut short, for the run goes on from `step`.

    Nothing is done where there is no file.

    Raises:
        DataError: if the file holds something else than numbers, or no steps.
    """
    if not path.exists():
        return
    columns = read_columns(path)
    if columns and "step" not in columns:
        raise DataError(f"{path} has no column 'step'")
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    kept = path.with_name(f"{path.name}.tmp")
    kept.unlink(missing_ok=True)
    for row in rows:
        if row["step"] <= step:
            append_row(kept, row)
    if kept.exists():
        kept.replace(path)
    else:
        path.unlink()


def _written(value: float) -> str:
    # A step of a million has more than six digits.
    return str(int(value)) if float(value).is_integer() and abs(value) < _WHOLE else f"{value:.6g}"
