"""Fine-tuned runs that are cut in the middle, with all that has a state or a schedule of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.mined_scenes import write_mined_scenes
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.data.scenes import write_scenes
from twinlens.training.errors import CheckpointError
from twinlens.training.train import train

SCENES = {"source": "scenes", "count": 40, "seed": 3}


def config(**sections: Any) -> TrainConfig:
    run = {"steps": 6, "batch_size": 8, "warmup_steps": 2, "log_every": 1, "state_every": 2}
    given = {"data": SCENES, "model": {"config": TINY_TOWERS}, **sections}
    return TrainConfig.model_validate({**given, "train": {**run, **sections.get("train", {})}})


def run(settings: TrainConfig, out: Path, cut_at: int | None = None, *, resume: bool = False) -> list[int]:
    steps: list[int] = []

    def report(step: int, values: dict[str, float]) -> None:
        if "loss" in values:
            steps.append(step)
            if step == cut_at:
                raise KeyError("cut")

    train(settings, out, report, resume=resume)
    return steps


@pytest.mark.parametrize("changed", ["parent", "mined", "validation"])
def test_a_run_whose_files_were_changed_does_not_go_on(changed: str, tmp_path: Path) -> None:
    """Locked towers are computed once more, the parent is mixed in at the end, hard negatives are drawn anew."""
    files = {name: tmp_path / name for name in ("parent", "other", "mined", "validation")}
    for name, steps in (("parent", 1), ("other", 2)):
        run(config(train={"steps": steps}), files[name])
    write_mined_scenes(files["mined"], 40)
    captions = write_scenes(files["validation"], 16, seed=5, size=SIZE)
    settings = config(
        model={"from_checkpoint": str(files["parent"])},
        hard_negatives={"manifest": str(files["mined"])},
        tuning={"lock_image": True},
        validation={"data": {"source": "captions", "path": str(captions)}, "every": 0, "interpolate": True},
    )
    with pytest.raises(KeyError):
        run(settings, tmp_path / "cut", cut_at=3)
    match changed:
        case "parent":
            (files["other"] / "checkpoint.pt").replace(files["parent"] / "checkpoint.pt")
        case "mined":
            write_mined_scenes(files["mined"], 40, shift=2)
        case _:
            captions.write_text(captions.read_text().replace("red", "ruby"))
    with pytest.raises(CheckpointError, match=r"^what the run reads has changed since .*state.pt was written"):
        run(settings, tmp_path / "cut", resume=True)


def test_a_cut_run_ends_where_a_whole_one_does_with_everything_on(tmp_path: Path) -> None:
    run(config(train={"steps": 2}), tmp_path / "parent")
    settings = config(
        model={"from_checkpoint": str(tmp_path / "parent")},
        train={"ema_decay": 0.8, "chunk_size": 4, "max_gradient_norm": 0.5, "learning_rate": 0.01},
        augment={},
        hard_negatives={"wrong_captions_per_anchor": 2, "share_start": 0.3, "confined": True, "weight": 2.0},
        tuning={"lock_image": True, "lock_text": 0, "unlock_steps": 2, "layer_decay": 0.7},
        validation={"share": 0.3, "every": 2, "interpolate": True, "interpolation_steps": 2},
    )
    run(settings, tmp_path / "whole")
    with pytest.raises(KeyError):
        run(settings, tmp_path / "cut", cut_at=5)  # the state is of step 4, behind a lock that opened
    assert run(settings, tmp_path / "cut", resume=True) == [5, 6]
    for name in ("checkpoint.pt", "best.pt", "tuned.pt", "unaveraged.pt"):
        ours, theirs = (load_checkpoint(tmp_path / out / name)[1].state_dict() for out in ("cut", "whole"))
        assert all(torch.equal(value, theirs[key]) for key, value in ours.items()), name
    tables = [(tmp_path / out / "interpolation.csv").read_text() for out in ("cut", "whole")]
    assert tables[0] == tables[1]
    parent = load_checkpoint(tmp_path / "parent" / "checkpoint.pt")[1].state_dict()
    tuned = load_checkpoint(tmp_path / "cut" / "tuned.pt")[1].state_dict()
    assert not torch.equal(tuned["visual.layer4.0.conv1.weight"], parent["visual.layer4.0.conv1.weight"])
    assert torch.equal(tuned["visual.conv1.weight"], parent["visual.conv1.weight"])
