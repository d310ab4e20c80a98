"""What files with vectors may hold, read without a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinlens.client import TwinlensError
from twinlens.client.import_source import numpy_source, parquet_source
from twinlens.client.parquet_export import SPACE_KEY


def test_values_that_python_cannot_hold_fail_their_rows_alone(tmp_path: Path) -> None:
    names = pa.array([b"a", b"\xff", b"c", b"d"])
    text = pa.Array.from_buffers(pa.string(), 4, names.buffers())  # not checked: a writer may have written anything
    days = pa.array([1, 2, 2**31 - 1, 4], pa.int32()).cast(pa.date32())
    spans = pa.array([{"s": 1}, {"s": 2}, {"s": 3}, {"s": 2**62}], pa.struct([("s", pa.duration("s"))]))
    vectors = pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"id": text, "bytes": names, "day": days, "span": spans, "image_vector": vectors}),
        tmp_path / "a.parquet",
    )
    for columns, errors in (
        ({}, ["", "the id is not a text but an unreadable string", "", ""]),
        ({"id": "bytes"}, ["", "the id is not UTF-8 text", "", ""]),
        ({"caption": "id", "id": "day"}, ["the id is not a text but date"] * 2
            + ["the id is not a text but an unreadable date32[day]", "the id is not a text but date"]),
        ({"metadata.day": "day"}, ["", "the id is not a text but an unreadable string",
            "a value of the metadata is an unreadable date32[day]", ""]),
        ({"id": "bytes", "metadata": "span"}, ["", "the id is not UTF-8 text", "",
            "the metadata is not an object but an unreadable struct<s: duration[s]>"]),
    ):  # fmt: skip
        assert [row.error for row in parquet_source(tmp_path / "a.parquet", columns).rows] == errors


def test_ids_are_texts_or_whole_numbers(tmp_path: Path) -> None:
    unique = UUID(int=7)
    columns: dict[str, Any] = {
        "text": ["a", "b"],
        "bytes": [b"a", "é".encode()],
        "whole": [1, 2**40],
        "unique": pa.array([unique.bytes] * 2, pa.uuid()),
        "real": [1.5, float("nan")],
        "list": [["a"], ["a"]],
        "truth": [True, False],
        "image_vector": pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for column, ids in {
        "text": ["a", "b"], "bytes": ["a", "é"], "whole": ["1", str(2**40)], "unique": [str(unique)] * 2,
    }.items():  # fmt: skip
        rows = parquet_source(tmp_path / "a.parquet", {"id": column}).rows
        assert [row.item.id for row in rows if row.item is not None] == ids
    for column, kind in {"real": "float", "list": "list", "truth": "bool", "image_vector": "list"}.items():
        rows = parquet_source(tmp_path / "a.parquet", {"id": column}).rows
        assert [row.error for row in rows] == [f"the id is not a text but {kind}"] * 2
    for row in parquet_source(tmp_path / "a.parquet", {"id": "text", "metadata": "image_vector"}).rows:
        assert row.error == "the metadata is not an object but list"


def test_columns_of_one_name_and_spaces_that_are_no_text_are_told(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    vectors = pa.array([[1.0, 2.0]], pa.list_(pa.float32()))
    pq.write_table(
        pa.Table.from_arrays([pa.array(["a"]), vectors, vectors], ["id", "image_vector", "image_vector"]), file
    )
    with pytest.raises(TwinlensError, match="2 columns 'image_vector'"):
        parquet_source(file, {})
    table = pa.table({"id": ["a"], "image_vector": vectors}).replace_schema_metadata({SPACE_KEY: b"\xff"})
    pq.write_table(table, file)
    assert parquet_source(file, {}).space_id == "\ufffd"


@pytest.mark.parametrize("option", ["", "--ids", "--metadata"])
@pytest.mark.parametrize("name", ["pipe", "endless", "folder"])
def test_what_has_no_end_is_not_read(tmp_path: Path, name: str, option: str) -> None:
    odd = tmp_path / f"{name}.npy"
    match name:
        case "pipe":
            os.mkfifo(odd)
        case "endless":
            odd.symlink_to("/dev/zero")
        case _:
            odd.mkdir()
    matrix = tmp_path / "good.npy"
    np.save(matrix, np.ones((3, 2), np.float32))
    with pytest.raises(TwinlensError, match="is not a file"):
        numpy_source(
            matrix if option else odd,
            "image",
            odd if option == "--ids" else None,
            odd if option == "--metadata" else None,
        )
    odd = odd.rename(odd.with_suffix(".parquet"))
    with pytest.raises(TwinlensError, match="is not a file"):
        parquet_source(odd, {})
