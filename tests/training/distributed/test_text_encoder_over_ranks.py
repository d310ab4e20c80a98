"""A text encoder of transformers over several processes, with a pooling layer that no vector depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from tests.support.ranks import as_torchrun_starts_it, on_ranks
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.train import train

pytest.importorskip("transformers")

VIT = {"image_size": SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
ERNIE = {
    "model_type": "ernie",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def config() -> TrainConfig:
    text_cfg = {"context_length": 20, "transformers": {"config": ERNIE}}
    return TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 16, "seed": 3},
            "model": {"config": {**TINY_TOWERS, "vision_cfg": VIT, "text_cfg": text_cfg}},
            "train": {"steps": 3, "batch_size": 8, "warmup_steps": 0, "log_every": 3},
        }
    )


def run(out: Path) -> None:
    as_torchrun_starts_it()
    train(config(), out, lambda *_: None)


def weights(out: Path) -> dict[str, Tensor]:
    return load_checkpoint(out / "checkpoint.pt")[1].state_dict()


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    on_ranks(run, tmp_path / "ranks", tmp_path / "two")
    train(config(), tmp_path / "one", lambda *_: None)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert any("pooler" in name for name in one)
    for name, value in one.items():
        assert (two[name] - value).abs().max() < 2e-4, name
