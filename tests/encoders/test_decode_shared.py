"""Every awkward file of the shared sets, real and made, against the outcome its list names."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from bench.quality.awkward import judge_made, judge_real, ours

pytestmark = pytest.mark.shared


def test_made_files_have_the_outcome_listed(shared_data: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = list(judge_made(shared_data / "awkward_made", ours))
    assert len(outcomes) > 50
    assert not [f"{each.file}: {each.wrong}" for each in outcomes if each.wrong]


def test_real_files_are_read_upright_or_refused_as_listed(shared_data: Path) -> None:
    outcomes = list(judge_real(shared_data / "awkward_a", ours))
    assert len(outcomes) > 100
    assert not [f"{each.file}: {each.wrong}" for each in outcomes if each.wrong]


def test_no_file_is_left_out(shared_data: Path) -> None:
    real, made = shared_data / "awkward_a", shared_data / "awkward_made"
    rows = [json.loads(line) for line in (real / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    on_disk = {path.relative_to(real).as_posix() for part in ("images", "derived") for path in (real / part).iterdir()}
    assert on_disk == {row["image"] for row in rows}
    checks = json.loads((made / "expected.json").read_text(encoding="utf-8"))["images"]
    named = {check["file"] for check in checks}
    for check in checks:
        named |= {check["check"].get("ref"), check["check"].get("decoy"), *check["check"].get("by_config", {}).values()}
    pictures = {path.relative_to(made).as_posix() for part in ("images", "decoys") for path in (made / part).iterdir()}
    assert pictures <= named
