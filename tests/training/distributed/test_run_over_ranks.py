from __future__ import annotations

import csv
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.ranks import as_torchrun_starts_it, on_ranks
from twinlens.training.data.errors import DataError
from twinlens.training.errors import ConfigError
from twinlens.training.image_config import ImageTrainConfig, read_image_config
from twinlens.training.methods.image_method import StepOutput
from twinlens.training.progress import Report

SETTINGS = [
    'model.timm="resnet10t"',
    "model.arguments={channels=[4, 4, 8, 8], stem_width=4}",
    "augment.size=16",
    "method.dim=8",
    "train.batch_size=8",
    "train.steps=4",
    "train.log_every=2",
    "train.optimiser=sgd",
    "train.learning_rate=0.02",
    "train.precision=fp32",
    "knn.every_epochs=0",
]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(16):
        small = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize((24, 24)).save(folder / f"{number:02}.png")
    return folder


def config(pictures: Path, *settings: str) -> ImageTrainConfig:
    return read_image_config("simclr", pictures=pictures, settings=[*SETTINGS, *settings])


def train(config: ImageTrainConfig, out: Path, reports: list[int]) -> dict[str, float]:
    from twinlens.training.train_images import train_images

    def report(step: int, values: dict[str, float]) -> None:
        if values:  # else it only says that the run lives
            reports.append(step)

    def reporting(steps: int) -> AbstractContextManager[Report]:
        return nullcontext(report)

    return train_images(config, out, reporting).last


def on_one_rank(config: ImageTrainConfig, out: Path) -> tuple[list[int], dict[str, float]]:
    as_torchrun_starts_it()
    reports: list[int] = []
    return reports, train(config, out, reports)


def rows(path: Path) -> list[dict[str, float]]:
    with path.open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_two_processes_train_what_one_does(tmp_path: Path, pictures: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    (first_reports, first), (second_reports, second) = on_ranks(
        on_one_rank, meeting, config(pictures), tmp_path / "both"
    )
    train(config(pictures), tmp_path / "alone", [])
    both, alone = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("both", "alone"))
    torch.testing.assert_close(both["state_dict"], alone["state_dict"], rtol=1e-4, atol=1e-5)
    # What is reported is the whole batch's, by the first process.
    for ours, theirs in zip(
        rows(tmp_path / "both" / "metrics.csv"), rows(tmp_path / "alone" / "metrics.csv"), strict=True
    ):
        for name in ("step", "loss", "accuracy", "std", "uniformity", "alignment"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3), name
    assert (first_reports, second_reports) == ([2, 4], [])
    assert first["loss"] == second["loss"]


def draws_on_one_rank(config: ImageTrainConfig, out: Path) -> list[float]:
    from twinlens.training.methods.simclr import SimCLR

    step, drawn = SimCLR.step, []

    def drawing(self: SimCLR, *inputs: Any) -> StepOutput:
        drawn.append(torch.rand(()).item())
        return step(self, *inputs)

    SimCLR.step = drawing  # type: ignore[method-assign, assignment]
    on_one_rank(config, out)
    return drawn


def test_ranks_draw_numbers_of_their_own(tmp_path: Path, pictures: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    first, second = on_ranks(draws_on_one_rank, meeting, config(pictures), tmp_path / "run")
    assert len(first) == len(second) == 4
    assert set(first).isdisjoint(second)


@pytest.mark.parametrize("method", ["simclr", "moco"])
def test_a_batch_that_ranks_cannot_share_is_refused_before_anything_is_written(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DataError, match="batch_size 8 is not a multiple of the 3 processes"):
        train(read_image_config(method, pictures=pictures, settings=SETTINGS), tmp_path / "run", [])
    assert not (tmp_path / "run").exists()


def test_chunks_are_refused_where_a_method_encodes_its_batch_at_once(tmp_path: Path, pictures: Path) -> None:
    asked = read_image_config(
        "random", pictures=pictures, settings=["augment.size=16", "train.batch_size=8", "train.chunk_size=4"]
    )
    with pytest.raises(ConfigError, match=r"train\.chunk_size: random encodes a batch at once"):
        train(asked, tmp_path / "run", [])
