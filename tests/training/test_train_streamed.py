"""Runs on shards that are read while training goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.picture_sources import write_shard
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.clip_result import TrainResult
from twinlens.training.config import TrainConfig
from twinlens.training.data.errors import DataError
from twinlens.training.data.scenes import generate
from twinlens.training.data.stream_source import StreamSource
from twinlens.training.errors import ConfigError
from twinlens.training.train import train


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    scenes = list(generate(40, 3, SIZE))
    for number, part in enumerate([scenes[:15], scenes[15:25], scenes[25:]]):
        members: dict[str, bytes] = {}
        for scene in part:
            members |= {f"{scene.id}.png": scene.png(), f"{scene.id}.txt": scene.caption.encode()}
        write_shard(folder / f"{number}.tar", members)
    return folder


def config(shards: Path, steps: int = 6, **data: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"source": "shards", "path": str(shards), "streaming": True, "shuffle_buffer": 6, **data},
            "model": {"name": "tiny", "config": TINY_TOWERS},
            "train": {"steps": steps, "batch_size": 8, "warmup_steps": 2, "log_every": 2, "state_every": 2},
        }
    )


def run(settings: TrainConfig, out: Path, *, stop_after: int | None = None, resume: bool = False) -> TrainResult:
    def report(step: int, values: dict[str, float]) -> None:
        if values and step == stop_after:
            raise KeyError("interrupted")

    return train(settings, out, report, resume=resume)


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(checkpoint)[1].state_dict()


def test_a_streamed_run_goes_on_as_if_it_had_never_stopped(shards: Path, tmp_path: Path) -> None:
    whole = run(config(shards), tmp_path / "whole")
    with pytest.raises(KeyError):
        run(config(shards), tmp_path / "killed", stop_after=4)
    assert not (tmp_path / "killed/checkpoint.pt").exists()
    resumed = run(config(shards), tmp_path / "killed", resume=True)
    for one, other in zip(weights(whole.checkpoint).values(), weights(resumed.checkpoint).values(), strict=True):
        assert torch.equal(one, other)
    assert whole.last["loss"] == resumed.last["loss"]
    assert json.loads((tmp_path / "whole/data.json").read_text())["shards"] == [
        str(shards / f"{number}.tar") for number in range(3)
    ]
    assert whole.told() == "6 steps on 40 pairs"


def test_broken_samples_of_a_streamed_run_are_told_in_the_end(shards: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "shards/0.tar", {"a.png": b"no picture", "a.txt": b"a", "b.txt": b"b"})
    for number in (1, 2):
        (tmp_path / f"shards/{number}.tar").write_bytes((shards / f"{number}.tar").read_bytes())
    result = run(config(tmp_path / "shards"), tmp_path / "run")
    assert result.unreadable.keys() == {"0.tar/a.png", "0.tar/b"}
    assert result.warnings()[0].startswith("left out 2 unreadable picture(s); the first is 0.tar/b: has no picture")
    with pytest.raises(DataError, match=r"of .* cannot be used"):
        run(config(tmp_path / "shards", max_unreadable_share=0), tmp_path / "strict")


def test_captions_are_not_read_where_no_words_are_learned(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards from elsewhere would be brought here for nothing."""
    parent = run(config(shards, steps=1), tmp_path / "parent").checkpoint
    monkeypatch.delattr(StreamSource, "captions")
    settings = config(shards, steps=1).model_dump() | {"model": {"from_checkpoint": str(parent)}}
    assert run(TrainConfig.model_validate(settings), tmp_path / "run").steps == 1


def test_mined_negatives_cannot_be_streamed(shards: Path, tmp_path: Path) -> None:
    settings = config(shards).model_dump() | {"hard_negatives": {"manifest": str(tmp_path / "m.parquet")}}
    (tmp_path / "m.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match="hard_negatives need all pairs in sight"):
        run(TrainConfig.model_validate(settings), tmp_path / "run")
