from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.training.errors import CheckpointError
from twinlens.training.run_checkpoint import checkpoint_of


def test_a_run_stands_for_its_checkpoint_and_a_file_for_itself(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").touch()
    (tmp_path / "state.pt").touch()  # left by a run that was killed at its very end
    assert checkpoint_of(tmp_path) == tmp_path / "checkpoint.pt"
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*any\.pt"):
        checkpoint_of(tmp_path / "any.pt")
    (tmp_path / "any.pt").touch()
    assert checkpoint_of(tmp_path / "any.pt") == tmp_path / "any.pt"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["bundle.json", "image.onnx"], "is a bundle without a checkpoint to train from: name the run"),
        (["config.json", "state.pt"], "yet: its run is under way, or was interrupted and ends with `train --resume`"),
        (["config.json", "metrics.csv"], "its run is under way, or ended before one was written; then train anew"),
        ([], r"no checkpoint at .*run/checkpoint\.pt"),
    ],
)
def test_a_folder_without_a_checkpoint_is_told_by_what_it_holds(files: list[str], message: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in files:
        (run / name).touch()
    with pytest.raises(CheckpointError, match=message):
        checkpoint_of(run)


def test_a_bundle_with_a_damaged_manifest_is_one_line(tmp_path: Path) -> None:
    for name in ("bundle.json", "checkpoint.pt"):
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=r"bundle\.json is not JSON"):
        checkpoint_of(tmp_path)
