"""Lists the pictures that a table names: JSONL, CSV, TSV or Parquet rows of (image[, label])."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from twinlens.training.data.table_rows import TABLE_KINDS, lacks, table_rows
from twinlens.training.errors import first_line

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
    rows = _parquet(path, columns) if path.suffix.lower() == ".parquet" else table_rows(path, what="list of pictures")
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
    value: Any = row.get(columns.image)
    label = _label(row.get(columns.label), columns, path, number)
    if value is None or value == "":
        raise DataError(lacks(path, number, columns.image, row))
    data = None
    if isinstance(value, dict):
        data, value = value.get("bytes"), value.get("path")
        if isinstance(data, bytes):
            # The path beside the bytes is often but the last part of one, the same for other rows.
            value = f"row {number} ({value})" if value else f"row {number}"
    elif isinstance(value, bytes):
        value, data = f"row {number}", value
    if not isinstance(value, str) or not isinstance(data, bytes | None):
        raise DataError(f"{path}, line {number}: {columns.image} must be the path of a picture")
    return ListedPicture(value, label, path if data is not None else root / value, data=data)


def _label(value: Any, columns: PictureColumns, path: Path, number: int) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{path}, line {number}: {columns.label} must be a text or a whole number, found {value!r}")
    label = str(value)
    if problem := problem_of_class(label):
        raise DataError(f"{path}, line {number}: {columns.label} {problem}")
    return known_label(label)


def _parquet(path: Path, columns: PictureColumns) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa  # noqa: PLC0415 - only here
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not path.is_file():
        raise DataError(f"no list of pictures at {path}")
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if columns.image not in names:
                raise DataError(f"{path} has no column {columns.image!r}; its columns are: {', '.join(names)}")
            wanted = [name for name in (columns.image, columns.label) if name in names]
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except UnicodeDecodeError:
        raise DataError(f"{path} holds a text that is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file we can read: {first_line(error)}") from None
