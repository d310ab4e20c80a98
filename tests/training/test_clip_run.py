"""Runs of a dual encoder that are cut short, run into a full disk, or write more than a table."""

from __future__ import annotations

import csv
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.killed_run import train_whole_and_killed
from tests.training.conftest import TINY_TOWERS
from twinlens.training import event_files
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.data.batches import Batch
from twinlens.training.errors import CheckpointError, ConfigError, TrainingError
from twinlens.training.methods.clip import Clip
from twinlens.training.sections.validation import ValidationConfig
from twinlens.training.train import train
from twinlens.training.validation_callback import ValidationCallback

Reports = list[tuple[int, dict[str, float]]]
# All that has a state of its own.
STATEFUL = {"ema_decay": 0.8, "max_gradient_norm": 0.5, "state_every": 2, "log_every": 1, "steps": 6}


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 40, "seed": 3},
            "model": {"name": "tiny", "config": TINY_TOWERS},
            "train": {"steps": 4, "batch_size": 16, "warmup_steps": 2, "log_every": 1, **settings},
        }
    )


def run(settings: TrainConfig, out: Path, at: Callable[[int], None] | None = None, *, resume: bool = False) -> Reports:
    reports: Reports = []

    def report(step: int, values: dict[str, float]) -> None:
        if values:
            reports.append((step, values))
            if at is not None:
                at(step)

    train(settings, out, report, resume=resume)
    return reports


def weights(file: Path) -> dict[str, Tensor]:
    return load_checkpoint(file)[1].state_dict()


def same(first: Path, second: Path, name: str = "checkpoint.pt") -> bool:
    ours, theirs = weights(first / name), weights(second / name)
    return all(torch.equal(ours[name], value) for name, value in theirs.items())


def validated(settings: TrainConfig) -> TrainConfig:
    """The same on fewer pairs, with a look at the others every other step."""
    return settings.model_copy(update={"validation": ValidationConfig(share=0.3, every=2)})


def rows(out: Path, table: str = "metrics.csv") -> list[dict[str, str]]:
    with (out / table).open(newline="") as file:
        told = list(csv.DictReader(file))
    timed = {"seconds", "samples_per_s", "data_wait"}
    return [{name: value for name, value in row.items() if name not in timed} for row in told]


@contextmanager
def full_disk(limit: int = 4096) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def broken_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses of steps 2 and 5 are not finite."""
    step = Clip.training_step

    def breaking(self: Clip, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        values = step(self, batch, batch_idx)
        return values | {"loss": values["loss"] * torch.nan} if self.global_step + 1 in {2, 5} else values

    monkeypatch.setattr(Clip, "training_step", breaking)


@pytest.mark.usefixtures("broken_batches")
def test_a_run_that_is_cut_goes_on_with_average_skipped_steps_and_scale_of_the_loss(tmp_path: Path) -> None:
    settings = validated(config(**STATEFUL, precision="fp16"))
    run(settings, tmp_path / "whole")

    def cut(step: int) -> None:
        if step == 4:  # the state is of step 2
            raise KeyError("cut")

    with pytest.raises(KeyError):
        run(settings, tmp_path / "cut", cut)
    again = run(settings, tmp_path / "cut", resume=True)
    steps = [(step, values["skipped"]) for step, values in again if "skipped" in values]
    assert steps == [(3, 1), (4, 1), (5, 2), (6, 2)]
    for table in ("metrics.csv", "evaluations.csv"):
        assert rows(tmp_path / "cut", table) == rows(tmp_path / "whole", table)
    assert [row["step"] for row in rows(tmp_path / "cut", "evaluations.csv")] == ["0", "2", "4", "6"]
    for name in ("checkpoint.pt", "unaveraged.pt", "best.pt"):
        assert same(tmp_path / "cut", tmp_path / "whole", name)
    average, raw = (weights(tmp_path / "whole" / name) for name in ("checkpoint.pt", "unaveraged.pt"))
    assert not torch.equal(average["text_projection"], raw["text_projection"])


@pytest.mark.usefixtures("broken_batches")
def test_a_skipped_step_moves_neither_weights_nor_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[dict[str, Tensor]] = []
    step = Clip.training_step

    def watched(self: Clip, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        before.append({name: value.clone() for name, value in self.state_dict().items()})
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Clip, "training_step", watched)
    run(config(steps=4, ema_decay=0.5, state_every=0), tmp_path / "run")
    for name in ("towers.model.text_projection", "average.network.model.text_projection"):
        first, second, third, fourth = (state[name] for state in before)
        assert not torch.equal(first, second), name
        assert torch.equal(second, third), name  # the second step is broken
        assert not torch.equal(third, fourth), name


@pytest.mark.usefixtures("broken_batches")
def test_more_skipped_steps_than_allowed_end_the_run_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"^the loss is nan at step 5: .*\(2 such step\(s\) so far; train.max_skip"):
        run(config(steps=6, max_skipped=1), tmp_path / "run")
    assert not (tmp_path / "run/checkpoint.pt").exists()


def test_a_disk_that_is_full_leaves_the_state_before(tmp_path: Path) -> None:
    settings = config(state_every=1)
    run(settings, tmp_path / "whole")
    with ExitStack() as disk:

        def fill(step: int) -> None:
            if step == 3:  # told before the state of step 3 is written
                disk.enter_context(full_disk())

        with pytest.raises(CheckpointError, match=r"^cannot write the run's state .*state.pt: .*[Ff]ile too large"):
            run(settings, tmp_path / "run", fill)
    assert {file.name for file in (tmp_path / "run").glob("*.pt*")} == {"state.pt"}
    assert [step for step, _ in run(settings, tmp_path / "run", resume=True)] == [3, 4]
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_disk_that_is_full_leaves_the_best_checkpoint_before(tmp_path: Path) -> None:
    settings = validated(config(state_every=0))
    better = iter([0.1, 0.2, 0.3])  # at the steps 0, 2 and 4

    def measure(looking: ValidationCallback, method: Clip) -> dict[str, float]:
        return {"mean_recall": next(better)}

    kept: list[dict[str, Tensor]] = []
    with ExitStack() as disk, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValidationCallback, "measure", measure)

        def fill(step: int) -> None:
            if step == 3:
                kept.append(weights(tmp_path / "run/best.pt"))
                disk.enter_context(full_disk())

        with pytest.raises(CheckpointError, match=r"^cannot write the checkpoint .*best.pt: File too large$"):
            run(settings, tmp_path / "run", fill)
    assert {file.name for file in (tmp_path / "run").glob("*.pt*")} == {"best.pt"}
    torch.testing.assert_close(weights(tmp_path / "run/best.pt"), kept[0], rtol=0, atol=0)


def test_a_disk_that_is_full_at_the_end_leaves_a_run_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = import_module("twinlens.training.train")
    settings = config(state_every=3)
    save = module.save_checkpoint

    def save_on_full_disk(path: Path, *rest: Any) -> None:
        with full_disk():
            save(path, *rest)

    monkeypatch.setattr(module, "save_checkpoint", save_on_full_disk)
    with pytest.raises(CheckpointError, match=r"^cannot write the checkpoint .*checkpoint.pt: File too large$"):
        run(settings, tmp_path / "run")
    assert {file.name for file in (tmp_path / "run").glob("*.pt*")} == {"state.pt"}
    monkeypatch.undo()
    assert [step for step, _ in run(settings, tmp_path / "run", resume=True)] == [4]
    run(settings, tmp_path / "whole")
    assert same(tmp_path / "run", tmp_path / "whole")


def test_reports_go_to_event_files_too(tmp_path: Path) -> None:
    accumulators: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def cut(step: int) -> None:
        if step == 3:
            raise KeyError("cut")

    settings = config(tensorboard=True, state_every=2)
    with pytest.raises(KeyError):
        run(settings, tmp_path / "run", cut)
    run(settings, tmp_path / "run", resume=True)
    events = accumulators.EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert {"loss", "accuracy", "learning_rate", "samples_per_s"} <= set(events.Tags()["scalars"])
    table = rows(tmp_path / "run")
    assert [event.step for event in events.Scalars("loss")] == [int(row["step"]) for row in table]
    losses = [event.value for event in events.Scalars("loss")]
    assert losses == pytest.approx([float(row["loss"]) for row in table], rel=1e-4)


def test_event_files_that_nothing_can_write_are_refused_before_the_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = util.find_spec
    monkeypatch.setattr(event_files, "find_spec", lambda name: None if name == "tensorboard" else find(name))
    with pytest.raises(ConfigError, match=r'^train.tensorboard: .* install "twinlens\[tensorboard\]", or leave it out'):
        run(config(tensorboard=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_towers_that_cannot_be_compiled_are_refused_before_the_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(function: object) -> object:
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(ConfigError, match=r"^train.compile: nothing can be compiled here \(No working C\+\+ compiler"):
        run(config(compile=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_towers_learn_the_same_in_chunks_too(tmp_path: Path) -> None:
    vit = {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
    losses = []
    for options in ({}, {"compile": True, "chunk_size": 8}):
        settings = config(**options)
        model = settings.model.model_copy(update={"config": {**TINY_TOWERS, "vision_cfg": vit}})
        reports = run(settings.model_copy(update={"model": model}), tmp_path / "-".join(["run", *options]))
        losses.append([values["loss"] for _, values in reports])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.slow
def test_a_killed_command_is_resumed_by_the_command(tmp_path: Path) -> None:
    """SIGKILL in the middle of an epoch, then `--resume` with nothing but the folder."""
    (tmp_path / "clip.toml").write_text(
        '[data]\nsource = "scenes"\ncount = 200\n[model.config]\nembed_dim = 16\n'
        "vision_cfg = { image_size = 32, layers = [1, 1, 1, 1], width = 8 }\n"
        "text_cfg = { context_length = 24, width = 32, heads = 2, layers = 1 }\n"
        "[train]\nsteps = 40\nbatch_size = 8\nstate_every = 1\nlog_every = 1\nema_decay = 0.9\n"
    )
    train_whole_and_killed("clip", ["clip.toml"], tmp_path)
    assert same(tmp_path / "cut", tmp_path / "whole")
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
