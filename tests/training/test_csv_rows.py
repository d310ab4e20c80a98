"""Tables of numbers survive being written row by row."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from twinlens.training.csv_rows import append_row, read_columns
from twinlens.training.data.errors import DataError


def test_rows_come_back_as_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    append_row(path, {"step": 1, "loss": 0.12345678})
    append_row(path, {"step": 2, "loss": math.nan})
    columns = read_columns(path)
    assert columns["step"] == [1.0, 2.0]
    assert columns["loss"][0] == 0.123457
    assert math.isnan(columns["loss"][1])


def test_whole_numbers_are_kept_and_infinities_come_back(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    append_row(path, {"step": 12_345_678.0, "loss": math.inf, "far": 1e300, "seconds": 1_234_567.8})
    assert path.read_text() == "step,loss,far,seconds\n12345678,inf,1e+300,1.23457e+06\n"
    assert read_columns(path) == {"step": [12_345_678], "loss": [math.inf], "far": [1e300], "seconds": [1_234_570]}


@pytest.mark.parametrize("cut", ["2", "2,", "2,0.4"])
def test_a_row_that_a_crash_cut_short_is_left_out(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"step,loss\n1,0.5\n{cut}")
    assert read_columns(path) == {"step": [1.0], "loss": [0.5]}


def test_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with pytest.raises(DataError, match=r"t\.csv is no table of numbers"):
        read_columns(path)
    path.write_text("step,loss\none,two\n")
    with pytest.raises(DataError, match="could not convert"):
        read_columns(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_names_the_table() -> None:
    with pytest.raises(DataError, match=r"^cannot write /dev/full: No space left on device$"):
        append_row(Path("/dev/full"), {"step": 1.0})
