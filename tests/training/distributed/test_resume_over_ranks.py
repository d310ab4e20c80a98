from __future__ import annotations

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
