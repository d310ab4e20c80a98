from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.mined_scenes import write_mined_scenes
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.data.errors import DataError
from twinlens.training.data.scenes import write_scenes
from twinlens.training.errors import CheckpointError, ConfigError, TrainingError
from twinlens.training.interruption import RunInterrupted
from twinlens.training.mining.manifest import Kind, MinedNegatives, write_manifest
from twinlens.training.train import config_of_run, train

VIT = {"image_size": SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
Reports = list[tuple[int, dict[str, float]]]


def config(**sections: dict[str, Any]) -> TrainConfig:
    base: dict[str, Any] = {
        "data": {"source": "scenes", "count": 64, "seed": 3},
        "model": {"name": "tiny", "config": TINY_TOWERS},
        "train": {"steps": 4, "batch_size": 16, "warmup_steps": 2, "log_every": 2},
    }
    for name, section in sections.items():
        base[name] = section if name in {"data", "model"} else {**base.get(name, {}), **section}
    return TrainConfig.model_validate(base)


def run(settings: TrainConfig, out: Path) -> tuple[Path, Reports]:
    reports: Reports = []
    result = train(settings, out, lambda step, values: reports.append((step, values)) if values else None)
    return result.checkpoint, reports


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "first"
    run(config(), out)
    return out


def test_a_run_folder_holds_all_that_the_run_was(trained: Path) -> None:
    assert {file.name for file in trained.iterdir()} == {
        "config.json",
        "environment.json",
        "data.json",
        "metrics.csv",
        "curves.png",
        "checkpoint.pt",
    }
    assert TrainConfig.model_validate(json.loads((trained / "config.json").read_text())) == config()
    assert json.loads((trained / "data.json").read_text())["pairs"] == 64
    assert "torch" in json.loads((trained / "environment.json").read_text())
    with (trained / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["step"]) for row in rows] == [2, 4]
    assert {"loss", "accuracy", "scale", "samples_per_s", "seconds"} <= rows[0].keys()


def test_the_checkpoint_knows_where_it_came_from(trained: Path) -> None:
    spec, _, meta = load_checkpoint(trained / "checkpoint.pt")
    assert (spec.name, meta.step) == ("tiny", 4)
    assert spec.preprocess.size == SIZE
    assert meta.lineage.method == "clip"
    assert meta.lineage.config_sha256 == config().digest()
    assert meta.lineage.data_sha256 == json.loads((trained / "data.json").read_text())["sha256"]


def test_positions_may_start_wider(trained: Path, tmp_path: Path) -> None:
    model = {"name": "tiny", "config": TINY_TOWERS, "position_std": 1.5}
    wide, _ = run(config(model=model, train={"steps": 1, "learning_rate": 1e-9}), tmp_path / "run")
    spreads = [
        float(load_checkpoint(path)[1].state_dict()["visual.attnpool.positional_embedding"].std())
        for path in (wide, trained / "checkpoint.pt")
    ]
    assert spreads[0] == pytest.approx(1.5, rel=0.2)
    assert spreads[1] < 0.2


def test_the_same_configuration_gives_the_same_weights(trained: Path, tmp_path: Path) -> None:
    again, _ = run(config(), tmp_path / "again")
    other, _ = run(config(train={"seed": 1}), tmp_path / "other")
    weights = [load_checkpoint(path)[1].state_dict() for path in (trained / "checkpoint.pt", again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["text_projection"], weights[2]["text_projection"])


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    _, reports = run(config(train={"steps": 24, "log_every": 1, "learning_rate": 3e-3}), tmp_path / "run")
    losses = [values["loss"] for _, values in reports]
    assert sum(losses[-4:]) / 4 < sum(losses[:4]) / 4 - 0.3


def test_a_run_goes_on_from_a_checkpoint_with_mined_negatives(trained: Path, tmp_path: Path) -> None:
    kinds: list[Kind] = ["text", "image"] * 32
    kinds.append("text")
    mined = MinedNegatives(
        anchor_ids=[f"scene-3-{i}" for i in range(64)] + ["gone"],
        negative_ids=[f"scene-3-{(i + 1) % 64}" for i in range(64)] + ["gone"],
        kinds=kinds,
        scores=[0.5] * 65,
        positive_scores=[0.6] * 65,
        ranks=[1] * 65,
        reasons=[""] * 65,
        space_id="ab" * 32,
    )
    write_manifest(tmp_path / "mined.parquet", mined)
    settings = config(
        model={"from_checkpoint": trained / "checkpoint.pt"},
        hard_negatives={"manifest": tmp_path / "mined.parquet", "texts_per_anchor": 1, "images_per_anchor": 1},
    )
    result = train(settings, tmp_path / "run", lambda *_: None)
    before, after = load_checkpoint(trained / "checkpoint.pt"), load_checkpoint(result.checkpoint)
    assert after[0] == before[0]
    assert after[2].step == 8
    assert after[2].lineage.parent_space_id == "ab" * 32
    assert result.unknown_mined_rows == 1
    assert "1 mined row" in result.warnings()[0]
    for name, value in before[1].state_dict().items():  # the statistics of batch norm go on as well
        if value.is_floating_point() and "attn_mask" not in name and value.numel() > 1:
            assert not torch.equal(value, after[1].state_dict()[name]), name


def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(tmp_path: Path) -> None:
    write_mined_scenes(tmp_path / "mined.parquet", 64)
    hard = {"manifest": tmp_path / "mined.parquet", "texts_per_anchor": 1, "pairs_per_anchor": 1}
    settings = config(train={"steps": 6, "state_every": 2, "log_every": 1}, hard_negatives=hard)
    whole, reports = run(settings, tmp_path / "whole")

    def stop(step: int, values: dict[str, float]) -> None:
        if step == 5:
            raise KeyError("interrupted")

    with pytest.raises(KeyError):
        train(settings, tmp_path / "cut", stop)
    other = settings.model_copy(update={"train": settings.train.model_copy(update={"seed": 1})})
    with pytest.raises(ConfigError, match=r"is a run with train.seed = 0; it cannot go on with 1"):
        train(other, tmp_path / "cut", stop, resume=True)
    assert config_of_run(tmp_path / "cut") == settings
    assert config_of_run(tmp_path / "cut", ["train.seed=1"]) == other
    again: Reports = []
    resumed = train(
        settings, tmp_path / "cut", lambda step, values: again.append((step, values)) if values else None, resume=True
    )
    assert [(step, values["loss"]) for step, values in again] == [(s, v["loss"]) for s, v in reports[4:]]
    weights = [load_checkpoint(path)[1].state_dict() for path in (whole, resumed.checkpoint)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not (tmp_path / "cut/state.pt").exists()


def test_a_signal_ends_a_run_with_its_state(tmp_path: Path) -> None:
    settings = config(train={"steps": 3, "state_every": 0, "log_every": 1})

    def ask(step: int, values: dict[str, float]) -> None:
        if step == 2 and values:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(
        RunInterrupted, match=r"^terminated at step 2; go on with: twinlens train clip --out \S*/run --re"
    ):
        train(settings, tmp_path / "run", ask)
    assert train(settings, tmp_path / "run", lambda *_: None, resume=True).last["step"] == 3


def test_captions_from_a_file_train_like_scenes(trained: Path, tmp_path: Path) -> None:
    path = write_scenes(tmp_path / "data", 64, seed=3, size=SIZE)
    result = train(config(data={"source": "captions", "path": path}), tmp_path / "run", lambda *_: None)
    ours, theirs = load_checkpoint(result.checkpoint)[1].state_dict(), load_checkpoint(trained / "checkpoint.pt")[1]
    assert all(torch.equal(ours[name], value) for name, value in theirs.state_dict().items())


def test_unreadable_pictures_are_counted_and_named_once(tmp_path: Path) -> None:
    path = write_scenes(tmp_path / "data", 40, seed=3, size=SIZE)
    (tmp_path / "data/images/scene-3-7.png").write_bytes(b"broken")
    data = {"source": "captions", "path": path, "max_unreadable_share": 0.1}
    result = train(config(data=data), tmp_path / "run", lambda *_: None)
    assert result.pairs == 39
    assert list(result.unreadable) == ["images/scene-3-7.png"]
    assert result.summary()["unreadable"] == result.unreadable
    assert "1 unreadable picture(s); the first is images/scene-3-7.png" in result.warnings()[0]
    assert json.loads((tmp_path / "run/data.json").read_text())["unreadable"] == result.unreadable


def test_bf16_trains(tmp_path: Path) -> None:
    _, reports = run(config(train={"precision": "bf16"}), tmp_path / "run")
    assert reports[-1][0] == 4


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the loss is .* at step \d+: lower learning_rate"):
        run(config(train={"learning_rate": 1e30, "warmup_steps": 0, "steps": 30}), tmp_path / "run")
    assert not (tmp_path / "run/checkpoint.pt").exists()


def test_a_run_folder_in_use_is_refused(trained: Path) -> None:
    with pytest.raises(ConfigError, match="holds a finished run; name a new folder"):
        run(config(), trained)


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    [
        ({"train": {"batch_size": 1}}, DataError, "teaches nothing"),
        ({"train": {"batch_size": 65}}, DataError, "larger than the data"),
        ({"model": {"open_clip": "no-such-model"}}, ConfigError, "knows no model 'no-such-model'"),
        (
            {"model": {"config": {**TINY_TOWERS, "vision_cfg": VIT}, "position_std": 1.0}},
            ConfigError,
            "position_std is for ResNets",
        ),
        ({"model": {"config": {"embed_dim": 8}}}, ConfigError, "must have embed_dim, vision_cfg and text_cfg"),
        ({"model": {"config": {**TINY_TOWERS, "vision_cfg": 3}}}, ConfigError, "must have embed_dim"),
        (
            {"model": {"config": {**TINY_TOWERS, "vision_cfg": {**VIT, "image_size": 8}}}},
            ConfigError,
            "scenes need an image_size of at least 16, not 8",
        ),
        ({"model": {"config": TINY_TOWERS, "std": [0, 0, 0]}}, ConfigError, "model: mean and std must be finite"),
        (
            {"model": {"config": {**TINY_TOWERS, "text_cfg": {"context_length": "long"}}}},
            ConfigError,
            "context_length: Input should be a valid integer",
        ),
        ({"model": {"from_checkpoint": Path("nope.pt")}}, CheckpointError, "no checkpoint at"),
        ({"data": {"source": "captions", "path": Path("no.jsonl")}}, DataError, "no captions file"),
    ],
)
def test_mistakes_stop_the_run_before_its_first_step(
    tmp_path: Path, sections: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(config(**sections), tmp_path / "run")
    assert not (tmp_path / "run/metrics.csv").exists()


@pytest.mark.slow
def test_the_command_trains_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "clip.toml").write_text(
        '[data]\nsource = "scenes"\ncount = 32\n[model.config]\nembed_dim = 16\n'
        "vision_cfg = { image_size = 32, layers = [1, 1, 1, 1], width = 8 }\n"
        "text_cfg = { context_length = 24, width = 32, heads = 2, layers = 1 }\n"
        "[train]\nsteps = 2\nbatch_size = 8\n"
    )

    def twinlens(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "twinlens", "train", "clip", *arguments]
        return subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False, env=os.environ)

    done = twinlens("clip.toml", "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pairs"] == 32
    assert "training: 2/2, " in done.stderr
    again = twinlens("clip.toml", "--out", "run")
    assert again.returncode == 1
    assert again.stderr.strip().splitlines() == ["twinlens: run holds a finished run; name a new folder"]
