"""A run that was killed goes on as if it had not been."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from tests.support.drawn_pictures import write_classes
from tests.support.killed_run import train_whole_and_killed
from tests.support.small_image_runs import Reports, small_run
from twinlens.training.errors import CheckpointError, ConfigError, TrainingRoomError
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.methods.registry import IMAGE_METHODS
from twinlens.training.methods.simclr import SimCLR
from twinlens.training.run_state import RunIdentity, read_state
from twinlens.training.train_images import train_images

# Dropped paths draw from torch's generator; a queue wraps around and a schedule bends within six steps.
SETTINGS = ("train.steps=6", "train.state_every=2", "knn.every_epochs=0.5", "model.arguments.drop_path_rate=0.2")
# These hold state of each kind: batch statistics, queue and moving average, queue and prototypes, hidden patches.
QUICK = ("simclr", "moco", "swav", "mae")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classes(tmp_path_factory.mktemp("pictures") / "photos", 8)


def interrupted(method: str, pictures: Path, out: Path, *settings: str, stop_at: int = 5) -> Path:
    with pytest.raises(KeyError, match="stopped"):
        train_images(small_run(method, pictures, *SETTINGS, *settings), out, Reports(stop_at))
    return out


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_image_checkpoint(checkpoint)[1].state_dict()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        told = list(csv.DictReader(file))
    return [
        {name: value for name, value in row.items() if name not in {"seconds", "samples_per_s", "data_wait"}}
        for row in told
    ]


@pytest.mark.parametrize(
    "method",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in IMAGE_METHODS
        if name != "random"
    ],
)
def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(
    method: str, pictures: Path, tmp_path: Path
) -> None:
    config = small_run(method, pictures, *SETTINGS)
    whole = train_images(config, tmp_path / "whole", Reports())
    out = interrupted(method, pictures, tmp_path / "cut")
    assert not (out / "checkpoint.pt").exists()
    (out / "state.pt.tmp").write_bytes(b"cut short")
    reports = Reports()
    resumed = train_images(config, out, reports, resume=True)
    assert [row["step"] for row in reports.rows] == [5, 6]  # the state is of step 4
    expected, found = weights(whole.checkpoint), weights(resumed.checkpoint)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    for table in ("metrics.csv", "evaluations.csv"):
        assert rows(out / table) == rows(tmp_path / "whole" / table)
    assert (resumed.knn, resumed.steps) == (whole.knn, whole.steps)
    assert resumed.told() == whole.told()
    assert not list(out.glob("state.pt*"))


def test_seconds_count_on(pictures: Path, tmp_path: Path) -> None:
    out = interrupted("simclr", pictures, tmp_path / "run")
    train_images(small_run("simclr", pictures, *SETTINGS), out, Reports(), resume=True)
    for table in ("metrics.csv", "evaluations.csv"):
        with (out / table).open() as file:
            seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
        assert seconds == sorted(seconds)


def test_another_method_configuration_or_data_is_refused_naming_both(pictures: Path, tmp_path: Path) -> None:
    out = interrupted("simclr", pictures, tmp_path / "run")
    for method, settings, message in (
        ("vicreg", (), r"run is a run of simclr; it cannot go on as vicreg"),
        ("simclr", ("train.learning_rate=0.5",), r"with train.learning_rate = [0-9.]+; it cannot go on with 0.5"),
        ("simclr", ("method.temperature=0.9",), r"with method.temperature = [0-9.]+; it cannot go on with 0.9"),
    ):
        with pytest.raises(ConfigError, match=message):
            train_images(small_run(method, pictures, *SETTINGS, *settings), out, Reports(), resume=True)
    (pictures / "jade/000.png").rename(pictures.parent / "000.png")
    try:
        with pytest.raises(CheckpointError, match=r"what the run reads has changed since .*state.pt was written"):
            train_images(small_run("simclr", pictures, *SETTINGS), out, Reports(), resume=True)
    finally:
        (pictures.parent / "000.png").rename(pictures / "jade/000.png")


def test_a_state_of_another_method_is_refused_also_where_the_record_is_gone(pictures: Path, tmp_path: Path) -> None:
    out = interrupted("simclr", pictures, tmp_path / "run")
    state = torch.load(out / "state.pt", weights_only=True)["twinlens"]
    own = RunIdentity("simclr", state["config_sha256"], state["data_sha256"])
    assert read_state(out / "state.pt", own) == 4
    for other, ranks, message in (
        (RunIdentity("moco", own.config_sha256, own.data_sha256), 1, "is of a run of simclr; it cannot go on as moco"),
        (RunIdentity("simclr", "0" * 64, own.data_sha256), 1, "is of configuration .*; it cannot go on with 00000000"),
        (own, 2, r"is of a run of 1 process\(es\); it cannot go on with 2"),
    ):
        with pytest.raises(CheckpointError, match=message):
            read_state(out / "state.pt", other, ranks=ranks)


def test_what_cannot_be_resumed_says_why(pictures: Path, tmp_path: Path) -> None:
    config = small_run("simclr", pictures)
    done = train_images(config, tmp_path / "done", Reports())
    with pytest.raises(ConfigError, match="done holds a finished run; there is nothing to resume"):
        train_images(config, done.checkpoint.parent, Reports(), resume=True)
    with pytest.raises(ConfigError, match="new holds no run to go on with"):
        train_images(config, tmp_path / "new", Reports(), resume=True)
    out = interrupted("simclr", pictures, tmp_path / "run")
    state = (out / "state.pt").read_bytes()
    middle = len(state) // 2
    (out / "state.pt").write_bytes(state[:middle] + bytes(64) + bytes(range(64)) + state[middle + 128 :])
    with pytest.raises(CheckpointError, match=r"state.pt is not the state of a run: it is damaged in "):
        train_images(small_run("simclr", pictures, *SETTINGS), out, Reports(), resume=True)
    (out / "state.pt").write_bytes(state[:1000])
    with pytest.raises(CheckpointError, match=r"state.pt is not the state of a run"):
        train_images(small_run("simclr", pictures, *SETTINGS), out, Reports(), resume=True)
    torch.save({"weights": torch.zeros(2)}, out / "state.pt")
    with pytest.raises(CheckpointError, match=r"state.pt is not the state of a run"):
        train_images(small_run("simclr", pictures, *SETTINGS), out, Reports(), resume=True)


@pytest.mark.parametrize(("breaks_at", "kept"), [(2, None), (4, "state.pt"), (6, "state.pt")])
def test_a_state_that_is_not_finite_is_not_kept(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_at: int, kept: str | None
) -> None:
    def break_at(self: SimCLR) -> None:
        if self.global_step + 1 == breaks_at:
            next(self.backbone.parameters()).data.fill_(torch.nan)

    monkeypatch.setattr(SimCLR, "after_step", break_at)
    config = small_run("simclr", pictures, *SETTINGS, "train.log_every=100", "knn.every_epochs=0")
    with pytest.raises(TrainingRoomError, match="not finite") as caught:
        train_images(config, tmp_path / "run", Reports())
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "run/checkpoint.pt").exists()
    assert [each.name for each in (tmp_path / "run").glob("*.pt*")] == ([] if kept is None else [kept])
    if kept is not None:
        state = torch.load(tmp_path / "run/state.pt", weights_only=True)
        assert all(torch.isfinite(value).all() for name, value in state["state_dict"].items() if "trunk" in name)


@pytest.mark.slow
def test_a_killed_command_is_resumed_by_the_command(pictures: Path, tmp_path: Path) -> None:
    """SIGKILL at an arbitrary moment, then `--resume` with nothing but method and folder."""
    settings = ("augment.size=32", "train.batch_size=8", "train.steps=120", "train.state_every=1", "train.log_every=1")
    small = ("model.stem=cifar_stride2", "model.arguments={layers = [1, 1, 1, 1], channels = [8, 8, 16, 16]}")
    options = [part for setting in (*settings, *small) for part in ("--set", setting)]
    train_whole_and_killed("simclr", ["--images", str(pictures), *options], tmp_path)
    expected, found = weights(tmp_path / "whole/checkpoint.pt"), weights(tmp_path / "cut/checkpoint.pt")
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert rows(tmp_path / "cut/metrics.csv") == rows(tmp_path / "whole/metrics.csv")
