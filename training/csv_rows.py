"""Tables of numbers that grow by a row at a time: metrics.csv, evaluations.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from twinlens.training.data.errors import DataError


def append_row(path: Path, row: Mapping[str, float]) -> None:
    """Adds a row, and the header before the first; six digits are kept."""
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if fresh:
            writer.writeheader()
        writer.writerow({name: f"{value:.6g}" for name, value in row.items()})


def read_columns(path: Path) -> dict[str, list[float]]:
    """The columns by name, in order; a row that a crash cut short is left out.

    Raises:
        DataError: if the file cannot be read, or holds something else than numbers.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [row for row in reader if None not in row and None not in row.values()]
            return {name: [float(row[name]) for row in rows] for name in reader.fieldnames or ()}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} is no table of numbers: {error}") from error
