from __future__ import annotations

import signal
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch

from tests.support.drawn_pictures import write_classes
from tests.support.ranks import as_torchrun_starts_it, on_ranks
from tests.support.small_image_runs import small_run
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.progress import Report


def on_one_rank(config: ImageTrainConfig, out: Path, stop_at: int, resume: bool) -> None:
    from twinlens.training.run_state import RunState
    from twinlens.training.train_images import train_images

    as_torchrun_starts_it()

    def report(step: int, values: dict[str, float]) -> None: ...

    def reporting(steps: int) -> AbstractContextManager[Report]:
        return nullcontext(report)

    if not stop_at:
        train_images(config, out, reporting, resume=resume)
        return
    write = RunState.on_train_batch_end

    def write_and_stop(self: RunState, trainer: object, *rest: object) -> None:
        write(self, trainer, *rest)  # type: ignore[arg-type]
        if trainer.global_step == stop_at:  # type: ignore[attr-defined]
            raise KeyError("stopped")

    RunState.on_train_batch_end = write_and_stop  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyError, match="stopped"):
        train_images(config, out, reporting)


def signalled_on_the_second_rank(config: ImageTrainConfig, out: Path) -> tuple[int, int]:
    """The step at which each rank ended, and its exit code."""
    from twinlens.training.interruption import RunInterrupted
    from twinlens.training.methods.simclr import SimCLR
    from twinlens.training.train_images import train_images

    as_torchrun_starts_it()

    def ask(self: SimCLR) -> None:
        if self.global_step + 1 == 2 and torch.distributed.get_rank() == 1:
            signal.raise_signal(signal.SIGTERM)

    SimCLR.after_step = ask  # type: ignore[method-assign, assignment]
    with pytest.raises(RunInterrupted) as caught:
        train_images(config, out, lambda _: nullcontext(lambda *_: None))
    return caught.value.step, caught.value.exit_code


@pytest.mark.slow
def test_a_signal_that_one_process_gets_ends_all_after_the_same_step(tmp_path: Path) -> None:
    pictures = write_classes(tmp_path / "photos", 8)
    out, meeting = tmp_path / "run", tmp_path / "meeting"
    meeting.mkdir()
    assert on_ranks(signalled_on_the_second_rank, meeting, small_run("simclr", pictures), out) == [(2, 143)] * 2
    assert (out / "state.pt").exists()
    assert not (out / "checkpoint.pt").exists()


@pytest.mark.slow
def test_an_interrupted_run_of_two_processes_ends_with_the_weights_of_one_that_was_not(tmp_path: Path) -> None:
    """Dropped paths draw from the generator of each process."""
    pictures = write_classes(tmp_path / "photos", 8)
    config = small_run("moco", pictures, "train.state_every=2", "model.arguments.drop_path_rate=0.2")

    def run(out: Path, *, stop_at: int = 0, resume: bool = False) -> None:
        meeting = tmp_path / f"meeting-{out.name}-{resume}"
        meeting.mkdir()
        on_ranks(on_one_rank, meeting, config, out, stop_at, resume)

    run(tmp_path / "whole")
    run(tmp_path / "cut", stop_at=3)
    assert not (tmp_path / "cut/checkpoint.pt").exists()
    run(tmp_path / "cut", resume=True)
    expected, found = (
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["state_dict"] for name in ("whole", "cut")
    )
    assert all(torch.equal(found[name], value) for name, value in expected.items())
