"""The script for GPUs on machines that lack what it looks for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bench.cuda.part import Order, Row, Skipped, run_part
from bench.gpu import LIMITS, orders, run, show
from twinlens.index.kinds.device import sees_gpu


def test_it_takes_less_than_six_minutes_and_orders_every_part() -> None:
    assert sum(LIMITS.values()) < 360
    assert orders("cuda", None).keys() == orders("cpu", None).keys() == LIMITS.keys()


@pytest.mark.skipif(sees_gpu(), reason="there is a GPU")
def test_without_a_gpu_the_indexes_are_skipped_and_the_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    part = run("index_kinds", {"device": "cuda", **orders("cuda", None)["index_kinds"]})
    assert (part["rows"], part["failed"]) == ([], "")
    assert "sees no GPU" in part["skipped"]
    show({"gpu": "none", "python": "3", "packages": {}, "seconds": 1.0, "parts": {"index_kinds": part}})
    assert "index_kinds: skipped" in capsys.readouterr().out


def _printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("missing", "told"), [(ModuleNotFoundError(name="faiss"), "faiss is not installed"), (Skipped("no GPU"), "no GPU")]
)
def test_what_was_measured_before_something_was_missing_is_kept(
    missing: Exception, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Order) -> Iterator[Row]:
        yield Row("flat", "queries", 10.0)
        raise missing

    monkeypatch.setattr(sys, "argv", ["part", "{}"])
    run_part(measure)
    found = _printed(capsys)
    assert [row["what"] for row in found["rows"]] == ["flat"]
    assert found["skipped"] == told
