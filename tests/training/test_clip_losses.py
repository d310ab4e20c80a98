"""Runs of a dual encoder by each of its losses, and with wrong captions of the data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig, read_config
from twinlens.training.data.errors import DataError
from twinlens.training.data.scenes import write_scenes
from twinlens.training.errors import ConfigError
from twinlens.training.export.open_clip_towers import scoring_rule
from twinlens.training.train import train

SCENES = {"source": "scenes", "count": 64, "seed": 3}
TINY = {"name": "tiny", "config": TINY_TOWERS}
RUN = {"steps": 16, "batch_size": 16, "warmup_steps": 2, "learning_rate": 3e-3, "log_every": 1}


def rows_of(
    out: Path, *, data: Any = SCENES, model: Any = TINY, run: Any = RUN, **sections: Any
) -> list[dict[str, float]]:
    """The reports of a run into `out`."""
    reports: list[dict[str, float]] = []
    config = TrainConfig.model_validate({"data": data, "model": model, "train": run, **sections})
    train(config, out, lambda _, values: reports.append(values) if values else None)
    return reports


@pytest.mark.parametrize("name", ["sigmoid", "debiased", "ranking"])
def test_every_loss_falls_and_is_logged_beside_the_same_figures(name: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "run", loss={"name": name})
    first, last = (sum(row["loss"] for row in part) / 4 for part in (rows[:4], rows[-4:]))
    assert last < first
    assert {"accuracy", "positive_cosine", "negative_cosine", "bound", "scale", "temperature"} <= rows[0].keys()
    assert all(row["bound"] <= math.log(16) for row in rows)


def test_the_loss_decides_by_which_rule_a_model_scores(tmp_path: Path) -> None:
    short = {**RUN, "steps": 2}
    rows_of(tmp_path / "siglip", run=short, loss={"name": "sigmoid"})
    _, siglip, _ = load_checkpoint(tmp_path / "siglip" / "checkpoint.pt")
    rule = scoring_rule(siglip)
    assert rule.rule == "sigmoid"
    assert rule.scale == pytest.approx(10, rel=0.02)  # the start of SigLIP, two steps on
    assert rule.bias == pytest.approx(-10, abs=0.02)
    assert rule.bias != -10
    going_on = {"from_checkpoint": tmp_path / "siglip"}
    rows_of(tmp_path / "clip", model=going_on, run=short)
    assert scoring_rule(load_checkpoint(tmp_path / "clip" / "checkpoint.pt")[1]).rule == "softmax"


def test_wrong_captions_of_scenes_make_the_task_harder(tmp_path: Path) -> None:
    still = {**RUN, "steps": 1, "learning_rate": 1e-9}
    plain = rows_of(tmp_path / "plain", run=still)
    for name, more in (("all", {}), ("confined", {"confined": True})):
        hard = {"wrong_captions_per_anchor": 3, **more}
        row = rows_of(tmp_path / name, run=still, hard_negatives=hard)[0]
        # Sixteen captions, and 48 or 3 more of the kind: at the start all are as near.
        expected = 0.5 * math.log((16 + (48 if name == "all" else 3)) / 16)
        assert row["loss"] - plain[0]["loss"] == pytest.approx(expected, abs=0.1)
        assert row["bound"] == pytest.approx(plain[0]["bound"], abs=1e-5)


def test_wrong_captions_of_a_file_are_those_of_the_scenes(tmp_path: Path) -> None:
    path = write_scenes(tmp_path / "scenes", 64, 3, SIZE)
    data = {"source": "captions", "path": path, "wrong_caption_column": "negatives"}
    few, hard = {**RUN, "steps": 3}, {"wrong_captions_per_anchor": 2}
    drawn = rows_of(tmp_path / "drawn", run=few, hard_negatives=hard)
    read = rows_of(tmp_path / "read", data=data, run=few, hard_negatives=hard)
    assert [row["loss"] for row in read] == pytest.approx([row["loss"] for row in drawn], abs=1e-6)


def test_wrong_captions_that_the_data_lacks_are_told_in_a_line(tmp_path: Path) -> None:
    path = write_scenes(tmp_path / "scenes", 16, 3, SIZE)
    with pytest.raises(DataError, match=r"the data holds no wrong captions: name their column with data\.wrong_cap"):
        rows_of(
            tmp_path / "run", data={"source": "captions", "path": path}, hard_negatives={"wrong_captions_per_anchor": 1}
        )


def test_a_misplaced_key_of_a_loss_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "clip.toml"
    path.write_text(f'[data]\nsource = "scenes"\n[model]\nopen_clip = "RN50"\n[loss]\nmargin = {json.dumps(0.2)}\n')
    with pytest.raises(ConfigError, match="loss: margin is for ranking, not for info_nce"):
        read_config(path)
