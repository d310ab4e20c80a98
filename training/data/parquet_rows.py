"""The rows of a Parquet file, as records of the columns that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinlens.training.data.errors import DataError
from twinlens.training.errors import first_line


def parquet_rows(
    path: Path, *, needed: Sequence[str], wanted: Sequence[str] = (), what: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Row numbers from 1, and rows; read in parts, so memory does not grow with the file.

    Args:
        path: The file.
        needed: Columns that must be there.
        wanted: Columns that are read where they are there.
        what: It is called in messages, such as "captions file".

    Raises:
        DataError: if the file is missing, no Parquet, or lacks a column.
    """
    import pyarrow as pa  # noqa: PLC0415 - only here
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not path.is_file():
        raise DataError(f"no {what} at {path}")
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            for column in needed:
                if column not in names:
                    raise DataError(f"{path} has no column {column!r}; its columns are: {', '.join(names)}")
            columns = [name for name in (*needed, *wanted) if name in names]
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except UnicodeDecodeError:
        raise DataError(f"{path} holds a text that is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file we can read: {first_line(error)}") from None
