"""Learning curves come from the tables of a run folder."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from PIL import Image

from twinlens.training.csv_rows import append_row
from twinlens.training.data.errors import DataError
from twinlens.training.evaluation.curves import Curve, curves_of, draw_curves


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (10, 20, 30):
        append_row(tmp_path / "metrics.csv", {"step": step, "seconds": step / 2, "samples_per_s": 9, "loss": 1 / step})
    append_row(tmp_path / "evaluations.csv", {"step": 30, "seconds": 15, "knn_accuracy": 0.5})
    return tmp_path


def test_both_tables_are_read(run: Path) -> None:
    curves = curves_of(run)
    assert set(curves) == {"loss", "knn_accuracy"}
    assert curves["loss"] == Curve((10.0, 20.0, 30.0), (0.1, 0.05, 0.0333333))
    assert curves["knn_accuracy"] == Curve((30.0,), (0.5,))


def test_time_can_take_the_place_of_steps(run: Path) -> None:
    assert curves_of(run, along="seconds")["loss"].x == (5.0, 10.0, 15.0)


def test_a_folder_without_tables_has_no_curves(tmp_path: Path) -> None:
    assert curves_of(tmp_path) == {}
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_curves({"empty": {}})


def test_a_damaged_table_is_named(run: Path) -> None:
    (run / "metrics.csv").write_text("step,loss\n1,much\n")
    with pytest.raises(DataError, match=r"metrics\.csv"):
        curves_of(run)


def test_the_picture_has_a_panel_a_measure(run: Path) -> None:
    curves = curves_of(run)
    gap = {**curves, "std": Curve((1, 2, 3), (0.1, math.nan, 0.2))}
    one = Image.open(io.BytesIO(draw_curves({"a": curves}, ["loss"])))
    three = Image.open(io.BytesIO(draw_curves({"a": gap, "b": curves})))
    assert one.format == three.format == "PNG"
    assert three.width > 2.5 * one.width


def test_the_same_curves_give_the_same_bytes(run: Path) -> None:
    assert draw_curves({"a": curves_of(run)}) == draw_curves({"a": curves_of(run)})
