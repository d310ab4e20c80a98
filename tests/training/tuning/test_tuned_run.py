"""Tuning through a whole run of `twinlens train clip`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training import clip_preparation
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.errors import ConfigError
from twinlens.training.train import train


def run(model: dict[str, Any], out: Path, tuning: dict[str, Any], **settings: Any) -> dict[str, torch.Tensor]:
    config = TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 64, "seed": 3},
            "model": model,
            "train": {"steps": 4, "batch_size": 16, "warmup_steps": 0, "log_every": 4, **settings},
            "tuning": tuning,
        }
    )
    return load_checkpoint(train(config, out, lambda *_: None).checkpoint)[1].state_dict()


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("parent") / "run"
    run({"config": TINY_TOWERS}, out, {})
    return out


def moved(parent: Path, after: dict[str, torch.Tensor]) -> set[str]:
    before = load_checkpoint(parent / "checkpoint.pt")[1].state_dict()
    return {name for name, value in after.items() if not torch.equal(value, before[name])}


def test_a_locked_tower_comes_out_as_it_went_in(parent: Path, tmp_path: Path) -> None:
    names = moved(parent, run({"from_checkpoint": parent}, tmp_path / "run", {"lock_image": True}, ema_decay=0.5))
    assert names
    assert not any(name.startswith("visual.") for name in names)


def test_a_tower_opens_while_the_run_is_under_way(parent: Path, tmp_path: Path) -> None:
    tuning = {"lock_image": True, "unlock_steps": 1}
    names = moved(parent, run({"from_checkpoint": parent}, tmp_path / "run", tuning))
    assert {name.split(".")[1] for name in names if name.startswith("visual.")} == {"attnpool", "layer4", "layer3"}


def test_rates_reach_the_optimiser(parent: Path, tmp_path: Path) -> None:
    after = run({"from_checkpoint": parent}, tmp_path / "run", {"image_rate": 1e-9}, weight_decay=0.0)
    before = load_checkpoint(parent / "checkpoint.pt")[1].state_dict()
    assert (after["visual.conv1.weight"] - before["visual.conv1.weight"]).abs().max() < 1e-8
    assert (after["ln_final.weight"] - before["ln_final.weight"]).abs().max() > 1e-5


@pytest.mark.parametrize("scratch", [False, True])
def test_what_does_not_fit_the_tower_is_one_line_before_the_data_is_read(
    parent: Path, tmp_path: Path, scratch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(clip_preparation, "load_pairs")
    model = {"config": TINY_TOWERS} if scratch else {"from_checkpoint": parent}
    with pytest.raises(ConfigError, match="patch_dropout is for Vision Transformers"):
        run(model, tmp_path / "run", {"patch_dropout": 0.5})
    with pytest.raises(ConfigError, match="image_residual is for towers that are joined through class names"):
        run(model, tmp_path / "run", {"image_residual": True})


def test_looking_at_the_tower_before_draws_no_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vit = {"image_size": SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
    model = {"config": {**TINY_TOWERS, "vision_cfg": vit}}
    looked = run(model, tmp_path / "looked", {"patch_dropout": 0.5}, steps=1)
    monkeypatch.setattr(clip_preparation, "check_tower", lambda *_: None)
    for name, value in run(model, tmp_path / "not", {"patch_dropout": 0.5}, steps=1).items():
        assert torch.equal(value, looked[name]), name
