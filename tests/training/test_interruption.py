from __future__ import annotations

import os
import signal
from pathlib import Path

import click
import pytest
import torch
import typer

from tests.support.drawn_pictures import write_classes
from tests.support.small_image_runs import Reports, small_run
from twinlens.__main__ import main
from twinlens.training import interruption
from twinlens.training.command_line import for_people
from twinlens.training.csv_rows import read_columns
from twinlens.training.evaluation.knn_callback import KnnCallback
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.interruption import Interruption, RunInterrupted
from twinlens.training.methods.simclr import SimCLR
from twinlens.training.ranks import Ranks
from twinlens.training.train_images import train_images

SETTINGS = ("train.steps=5", "train.state_every=0", "model.arguments.drop_path_rate=0.2")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classes(tmp_path_factory.mktemp("pictures") / "photos", 8)


def asked_in_step(number: int, which: signal.Signals, monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> None:
    def ask(self: SimCLR) -> None:
        if self.global_step + 1 == number:
            for _ in range(times):
                signal.raise_signal(which)

    monkeypatch.setattr(SimCLR, "after_step", ask)


@pytest.mark.parametrize(
    ("which", "word", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_a_signal_ends_a_run_after_the_step_and_it_goes_on_as_if_it_had_not(
    which: signal.Signals, word: str, code: int, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, before = small_run("simclr", pictures, *SETTINGS), signal.getsignal(which)
    whole = train_images(config, tmp_path / "whole", Reports())
    out = tmp_path / "cut here"
    with monkeypatch.context() as patched:
        asked_in_step(2, which, patched)
        with pytest.raises(RunInterrupted) as caught:
            train_images(config, out, Reports())
    assert str(caught.value) == f"{word} at step 2; go on with: twinlens train simclr --out '{out}' --resume"
    assert caught.value.exit_code == code
    assert signal.getsignal(which) is before
    resumed = train_images(config, out, Reports(), resume=True)
    expected, found = (load_image_checkpoint(run.checkpoint)[1].state_dict() for run in (whole, resumed))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert read_columns(out / "metrics.csv")["loss"] == read_columns(tmp_path / "whole/metrics.csv")["loss"]
    assert not list(out.glob("state.pt*"))


def test_the_command_says_how_to_go_on(
    pictures: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in_step(2, signal.SIGINT, monkeypatch)
    out = tmp_path / "run"
    config = tmp_path / "small.toml"
    config.write_text('[data]\npath = "photos"\n[augment]\nsize = 32\n[train]\nbatch_size = 8\nsteps = 3\n')
    (tmp_path / "photos").symlink_to(pictures)
    assert main(["train", "simclr", str(config), "--out", str(out)]) == 130
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == f"twinlens: interrupted at step 2; go on with: twinlens train simclr --out {out} --resume"
    assert (out / "state.pt").exists()


def test_a_signal_in_the_last_step_lets_the_run_finish(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in_step(5, signal.SIGTERM, monkeypatch)
    result = train_images(small_run("simclr", pictures, *SETTINGS), tmp_path / "run", Reports())
    assert (result.steps, result.checkpoint.exists()) == (5, True)


def test_before_the_first_step_nothing_is_kept(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnnCallback, "on_train_start", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit):  # what Lightning makes of Ctrl-C
        train_images(small_run("simclr", pictures, *SETTINGS), tmp_path / "runs/new", Reports())
    assert not (tmp_path / "runs").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_asking_again_ends_at_once(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_SAME_ASKING_S", 0.0)
    asked_in_step(2, signal.SIGINT, monkeypatch, times=2)
    with pytest.raises(SystemExit):
        train_images(small_run("simclr", pictures, *SETTINGS), tmp_path / "run", Reports())
    assert not (tmp_path / "run/state.pt").exists()


def test_a_signal_that_comes_twice_at_once_is_one(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in_step(2, signal.SIGINT, monkeypatch, times=2)
    with pytest.raises(RunInterrupted):
        train_images(small_run("simclr", pictures, *SETTINGS), tmp_path / "run", Reports())


def test_several_processes_are_told_to_go_on_as_many() -> None:
    ended = RunInterrupted(signal.SIGTERM, 7, method="byol", out=Path("run"), ranks=Ranks(1, 4, 4))
    assert str(ended) == (
        "terminated at step 7; go on with: torchrun --nproc-per-node 4 -m twinlens train byol --out run --resume"
    )


@pytest.mark.parametrize(("rank", "kind"), [("0", click.ClickException), ("1", typer.Exit)])
def test_of_several_processes_one_says_how_to_go_on(
    rank: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"TORCHELASTIC_RUN_ID": "x", "RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind) as caught, for_people():
        raise RunInterrupted(signal.SIGINT, 7, method="byol", out=Path("run"))
    assert getattr(caught.value, "exit_code") == 130  # noqa: B009 - of either kind


def test_a_signal_is_noted_although_nobody_reads_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise BrokenPipeError

    with Interruption() as noted, monkeypatch.context() as patched:
        noted.catch()
        patched.setattr(os, "write", gone)
        signal.raise_signal(signal.SIGTERM)
    assert noted.signal == signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Interruption() as noted:
            noted.catch()
            signal.raise_signal(signal.SIGTERM)
            assert noted.signal is None
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
