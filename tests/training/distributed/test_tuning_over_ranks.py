"""Locks and rates hold alike where several processes share each batch."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from tests.support.ranks import as_torchrun_starts_it, on_ranks
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.train import train

VIT = {"image_size": SIZE, "layers": 3, "width": 16, "head_width": 8, "patch_size": 16}
TUNING = {"lock_image": True, "lock_text": 0, "unlock_steps": 2, "layer_decay": 0.7}


def config() -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 32, "seed": 3},
            "model": {"config": {**TINY_TOWERS, "vision_cfg": VIT}},
            "train": {"steps": 5, "batch_size": 16, "warmup_steps": 0, "log_every": 5, "max_gradient_norm": 1.0},
            "tuning": TUNING,
        }
    )


def run(out: Path) -> None:
    as_torchrun_starts_it()
    train(config(), out, lambda *_: None)


def weights(out: Path) -> dict[str, Tensor]:
    return load_checkpoint(out / "checkpoint.pt")[1].state_dict()


def test_two_processes_open_the_blocks_that_one_opens(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    on_ranks(run, tmp_path / "ranks", tmp_path / "two")
    train(config(), tmp_path / "one", lambda *_: None)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, value in one.items():
        assert (two[name] - value).abs().max() < 2e-4, name
    start = config().model_copy(
        update={"train": config().train.model_copy(update={"steps": 1, "learning_rate": 1e-12})}
    )
    train(start, tmp_path / "start", lambda *_: None)
    before = weights(tmp_path / "start")
    for found in (one, two):
        moved = {name for name in found if (found[name] - before[name]).abs().max() > 1e-6}
        images = {name.split(".")[3] for name in moved if name.startswith("visual.transformer")}
        assert images == {"2"}  # steps 0 and 1: nothing; 2 and 3: the head; 4: the last block
        assert "visual.conv1.weight" not in moved
