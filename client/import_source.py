"""Items with vectors from Parquet and NumPy files, a few thousand at a time, whatever their size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, repeat
from pathlib import Path
from stat import S_ISREG
from typing import Any, get_args
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.parquet_export import SPACE_KEY
from twinlens.client.types import Modality, NewItem

_ROWS = 1024
_FIELDS = ("id", "uri", "caption", "metadata", "image_vector", "text_vector")
_VECTORS = ("image_vector", "text_vector")


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A row: what to store, or why it cannot be; `name` says which it is."""

    name: str
    item: NewItem | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ImportSource:
    """What a file holds.

    Attributes:
        count: How many rows.
        space_id: The space its vectors belong to; empty where it does not say.
        has_vectors: Whether it has any.
        rows: The rows, in order.
    """

    count: int
    space_id: str
    has_vectors: bool
    rows: Iterator[ImportRow]


def parquet_source(path: Path, columns: Mapping[str, str]) -> ImportSource:
    """Reads a Parquet file, one of `twinlens collections export` or another.

    Args:
        path: The file.
        columns: What to take from which column: "id", "uri", "caption", "metadata" (JSON text, or a struct),
            "image_vector", "text_vector", or "metadata.KEY". What is not named is taken from the column of that name.

    Raises:
        TwinlensError: it cannot be read, or lacks a column.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes a while to load, and few commands need it
    import pyarrow.parquet as pq  # noqa: PLC0415

    _check_file(path)
    for name in columns:
        if name not in _FIELDS and not (name.startswith("metadata.") and name != "metadata."):
            raise invalid(f"--column {name}: it is one of {', '.join(_FIELDS)} and metadata.KEY")
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise invalid(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    there = file.schema_arrow.names
    for name, column in columns.items():
        if column not in there:
            raise invalid(f"{path} has no column {column!r} (for {name}); it has {', '.join(there)}")
    taken = {name: name for name in _FIELDS if name in there} | dict(columns)
    if not any(name in taken for name in (*_VECTORS, "caption")):
        raise invalid(
            f"{path} has neither vectors nor captions under names we know; it has {', '.join(there)}: say "
            "--column image_vector=COLUMN"
        )
    if several := next((column for column in taken.values() if there.count(column) > 1), None):
        raise invalid(f"{path} has {there.count(several)} columns {several!r}, and nothing says which one is meant")
    has_vectors = any(name in taken for name in _VECTORS)
    if has_vectors and "id" not in taken:
        raise invalid(f"{path} has no column id: say --column id=COLUMN; it has {', '.join(there)}")
    about = file.schema_arrow.metadata or {}

    def rows() -> Iterator[ImportRow]:
        start = 0
        try:
            for group in range(file.num_row_groups):  # one at a time: over all of them, memory grows with the file
                for batch in file.iter_batches(_ROWS, row_groups=[group], columns=sorted(set(taken.values()))):
                    yield from _batch_rows(batch, taken, start)
                    start += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise invalid(f"{path} cannot be read beyond row {start}: {str(error).splitlines()[0]}") from None

    return ImportSource(file.metadata.num_rows, about.get(SPACE_KEY, b"").decode(errors="replace"), has_vectors, rows())


def _batch_rows(batch: Any, taken: Mapping[str, str], start: int) -> Iterator[ImportRow]:
    count = batch.num_rows
    vectors = {
        name: _vectors(batch.column(taken[name]), name) if name in taken else [None] * count for name in _VECTORS
    }
    plain = {name: _values(batch.column(column)) for name, column in taken.items() if name not in _VECTORS}
    for place in range(count):
        values = {name: column[place] for name, column in plain.items()}
        brought = {name: column[place] for name, column in vectors.items()}
        yield _row(values, brought, f"row {start + place}")


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A value that Python cannot hold: a time far away, or bytes that are not UTF-8 in a column of text."""

    type: str


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(each) for each in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return _Unreadable(str(scalar.type))


def _row(values: Mapping[str, Any], vectors: Mapping[str, NDArray[Any] | None], name: str) -> ImportRow:
    item_id = ""
    try:
        item_id = _id(values.get("id"))
        item = NewItem(
            id=item_id,
            uri=_text(values.get("uri"), "uri"),
            caption=_text(values.get("caption"), "caption"),
            metadata=_metadata(values),
            image_vector=vectors["image_vector"],
            text_vector=vectors["text_vector"],
        )
    except ValueError as error:
        return ImportRow(item_id or name, None, str(error))
    return ImportRow(item_id or name, item)


def _id(value: Any) -> str:
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return str(value)
    return _text(value, "id")


def _text(value: Any, what: str) -> str:
    if isinstance(value, bytes):  # many writers leave out that a column of bytes is text
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"the {what} is not UTF-8 text") from None
    if value is None or isinstance(value, str):
        return value or ""
    raise ValueError(f"the {what} is not a text but {_kind(value)}")


def _kind(value: Any) -> str:
    return f"an unreadable {value.type}" if isinstance(value, _Unreadable) else type(value).__name__


def _metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    found = values.get("metadata")
    if isinstance(found, str):
        try:
            found = json.loads(found) if found else {}
        except (ValueError, RecursionError):
            raise ValueError("the metadata is not JSON") from None
    elif isinstance(found, list) and all(isinstance(each, tuple) for each in found):  # an Arrow map
        found = dict(found)
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"the metadata is not an object but {_kind(found)}")
    named = {
        name.partition(".")[2]: value
        for name, value in values.items()
        if name.startswith("metadata.") and value is not None
    }
    return {key: _plain(value) for key, value in {**(found or {}), **named}.items()}


def _plain(value: Any) -> Any:
    """What JSON lacks, in its terms: times as ISO 8601, which filters compare as times, and decimals as floats."""
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case _Unreadable():
            raise ValueError(f"a value of the metadata is {_kind(value)}")
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case _:
            return value


def _vectors(column: Any, name: str) -> list[NDArray[Any] | None]:
    """Rows of a column of lists; None where there is none."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kinds = (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list)
    if not any(is_kind(column.type) for is_kind in kinds) or not pa.types.is_floating(column.type.value_type):
        raise invalid(f"the column for {name} holds {column.type}, not lists of floating-point numbers")
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    values = column.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    valid = column.is_valid().to_pylist()
    return [
        values[end - length : end] if there else None for there, length, end in zip(valid, lengths, ends, strict=True)
    ]


def numpy_source(path: Path, modality: Modality, ids: Path | None, metadata: Path | None) -> ImportSource:
    """Reads a matrix of vectors from a .npy file, a row an item.

    Args:
        path: Its file, shape (n, d).
        modality: Whose vectors they are.
        ids: A text file with the id of each row on a line of its own; None: the rows' numbers.
        metadata: A .jsonl file with an object for each row.

    Raises:
        TwinlensError: a file cannot be read, or they are not of one length.
    """
    if modality not in get_args(Modality):
        raise invalid(f"modality is one of {', '.join(get_args(Modality))}, not {modality!r}")
    for file in (path, ids, metadata):
        if file is not None:
            _check_file(file)
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise invalid(f"{path} cannot be read as a NumPy array: {error.strerror}") from None
    except (ValueError, EOFError):  # whose words are advice to trust the file
        raise invalid(f"{path} cannot be read as a NumPy array: it holds something else, or is cut off") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind != "f":
        kind = f"{matrix.dtype} of shape {matrix.shape}" if isinstance(matrix, np.ndarray) else "an archive"
        raise invalid(f"{path} holds {kind}, not a matrix of floating-point numbers of shape (n, d)")
    count = len(matrix)
    for file, what in ((ids, "ids"), (metadata, "metadata")):
        if file is not None and (lines := sum(1 for _ in _lines(file))) != count:
            raise invalid(f"{file} has {lines:,} lines of {what}, but {path} has {count:,} rows")
    return ImportSource(count, "", True, _numpy_rows(matrix, modality, ids, metadata))


def _numpy_rows(
    matrix: NDArray[Any], modality: Modality, ids: Path | None, metadata: Path | None
) -> Iterator[ImportRow]:
    width = len(str(max(0, len(matrix) - 1)))  # so that they are in order as texts, too
    names = _lines(ids) if ids is not None else (f"{row:0{width}d}" for row in range(len(matrix)))
    texts = _lines(metadata) if metadata is not None else repeat("{}")
    blocks = (np.asarray(matrix[start : start + _ROWS]) for start in range(0, len(matrix), _ROWS))
    for item_id, text, vector in zip(names, texts, chain.from_iterable(blocks), strict=False):
        vectors: dict[str, NDArray[Any] | None] = dict.fromkeys(_VECTORS)
        vectors[f"{modality}_vector"] = vector
        yield _row({"id": item_id, "metadata": text}, vectors, f"row {item_id}")


def _check_file(path: Path) -> None:
    """Refuses what has no end or would keep us waiting, such as a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise TwinlensError("NOT_FOUND", f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise invalid(f"{path} cannot be read: {why}") from None
    if not S_ISREG(mode):
        raise invalid(f"{path} is not a file")


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\r\n")
    except OSError as error:
        raise TwinlensError("NOT_FOUND", f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise invalid(f"{path} is not UTF-8 text") from None
