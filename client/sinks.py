"""Where labels go: .jsonl, .csv or .parquet, written as they come and put in place when complete."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from twinlens.client.aside import written_aside
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.sources import FoundImage, portable
from twinlens.client.types import Classification

COLUMNS = ("id", "path", "label", "probability", "cosine", "labels", "none_of_these", "error")
_ROWS_A_GROUP = 4096


@dataclass(frozen=True, slots=True)
class LabelRow:
    """What became of one picture, the same columns in every form.

    Attributes:
        id: Its path below the folder.
        path: Its path as it can be opened from where the command ran.
        label: The best label; None where the picture failed, or shows none of the labels.
        probability: The model's own probability of that label.
        cosine: Raw cosine of picture and that label.
        labels: The best labels, best first, each with `label`, `probability` and `cosine`. In CSV this is JSON text.
        none_of_these: None of them fits; they are told all the same.
        error: Why it failed; empty where it did not.
    """

    id: str
    path: str
    label: str | None
    probability: float | None
    cosine: float | None
    labels: tuple[dict[str, Any], ...]
    none_of_these: bool = False
    error: str = ""


def label_row(found: FoundImage, result: Classification) -> LabelRow:
    """The row of one picture's result."""
    item_id, path = found.id, portable(str(found.path))
    if result.error is not None or not result.scores:
        return LabelRow(item_id, path, None, None, None, (), error=str(result.error or "no label came back"))
    best = result.scores[0]
    labels = tuple(
        {"label": each.label, "probability": _short(each.probability), "cosine": _short(each.cosine)}
        for each in result.scores
    )
    if result.none_of_these:
        return LabelRow(item_id, path, None, None, None, labels, none_of_these=True)
    return LabelRow(item_id, path, best.label, _short(best.probability), _short(best.cosine), labels)


def _short(value: float) -> float:
    """Seven significant digits: what 32 bits hold, without the tail that 64 bits would show."""
    return float(f"{value:.7g}")


class LabelSink(Protocol):
    """Takes rows."""

    def write(self, rows: Sequence[LabelRow]) -> None:
        """Writes rows, in order."""
        ...


def jsonl_line(row: LabelRow) -> str:
    """A row as a line of JSON."""
    return json.dumps({name: getattr(row, name) for name in COLUMNS}, ensure_ascii=False) + "\n"


class _Jsonl:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: Sequence[LabelRow]) -> None:
        for row in rows:
            self._file.write(jsonl_line(row))

    def close(self) -> None:
        self._file.close()


class _Csv:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(COLUMNS)

    def write(self, rows: Sequence[LabelRow]) -> None:
        for row in rows:
            labels = json.dumps(row.labels, ensure_ascii=False) if row.labels else ""
            none = json.dumps(row.none_of_these)
            best = (row.label, row.probability, row.cosine)
            self._writer.writerow((row.id, row.path, *best, labels, none, row.error))

    def close(self) -> None:
        self._file.close()


class _Parquet:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - takes a while to load, and few commands need it
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._arrow = pa
        text, number = pa.string(), pa.float32()
        score = pa.struct([("label", text), ("probability", number), ("cosine", number)])
        types = (text, text, text, number, number, pa.list_(score), pa.bool_(), text)
        self._schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
        self._writer = pq.ParquetWriter(str(path), self._schema)
        self._rows: list[LabelRow] = []

    def write(self, rows: Sequence[LabelRow]) -> None:
        self._rows.extend(rows)
        if len(self._rows) >= _ROWS_A_GROUP:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        columns = {name: [getattr(row, name) for row in self._rows] for name in COLUMNS}
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._rows = []


_FORMS: dict[str, Callable[[Path], _Jsonl | _Csv | _Parquet]] = {".jsonl": _Jsonl, ".csv": _Csv, ".parquet": _Parquet}


def check_out(out: str | os.PathLike[str]) -> Path:
    """The file to write, if it can be written; asked before any work is done.

    Raises:
        TwinlensError: INVALID_ARGUMENT where the ending is none of .jsonl, .csv, .parquet, or the folder is missing.
    """
    path = Path(out)
    if path.suffix.lower() not in _FORMS:
        raise invalid(f"{path} must end in one of {', '.join(_FORMS)}")
    if path.is_dir():
        raise invalid(f"{path} is a folder")
    if not path.parent.is_dir():
        raise TwinlensError("NOT_FOUND", f"no such folder: {path.parent}")
    return path


@contextmanager
def open_sink(out: str | os.PathLike[str]) -> Iterator[LabelSink]:
    """A writer of the form that the ending names. The file appears, complete, when the block ends without an error.

    Raises:
        TwinlensError: as `check_out`, and where the file cannot be written.
    """
    path = check_out(out)
    with written_aside(path) as part:
        sink = _FORMS[path.suffix.lower()](part)
        try:
            yield sink
        finally:
            sink.close()
