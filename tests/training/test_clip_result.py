from __future__ import annotations

import json
import math
from pathlib import Path

from twinlens.training.clip_result import TrainResult


def test_a_last_step_that_was_skipped_leaves_a_summary_that_is_json() -> None:
    last = {"step": 9.0, "loss": math.nan, "scale": 14.0, "skipped": 1.0}
    result = TrainResult(Path("checkpoint.pt"), 9, 40, {}, 0, last)
    told = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert told["metrics"] == {**last, "loss": None}
    assert result.warnings() == ["skipped 1 step(s) whose loss or gradient was not finite"]


def test_what_was_not_measured_is_not_in_the_summary() -> None:
    result = TrainResult(Path("checkpoint.pt"), 9, 40, {}, 0, {})
    assert not {"best", "interpolated"} & result.summary().keys()
    assert result.told() == "9 steps on 40 pairs"
