"""The look at the encoder during training: when, at what, and that training does not notice."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.evaluation.knn_callback import KnnCallback, feature_measures
from twinlens.training.loop import fit

SPEC = PreprocessSpec(size=8, resize_size=8, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def coloured(count: int, seed: int = 0, classes: tuple[str, ...] = ("red", "green", "blue")) -> PictureSet:
    """Noisy pictures in as many colours as classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(classes)
    pixels = rng.integers(0, 60, (count, 8, 8, 3))
    pixels[np.arange(count), :, :, labels % 3] += 150
    names = tuple(str(i) for i in range(count))
    return PictureSet(pixels.astype(np.uint8), labels.astype(np.int64), classes, names, names, {})


class Method(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.modes: list[bool] = []

    def training_step(self, batch: Any) -> dict[str, Tensor]:
        self.modes.append(self.net.training)
        pixels = batch.pixels_nhwc.permute(0, 3, 1, 2).float() / 255
        return {"loss": self.net(pixels + 0.01 * torch.rand_like(pixels)).square().mean()}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:  # noqa: ARG002
        return batch.to(device)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def exported(self) -> nn.Module:
        return self.net


def run(method: Method, out: Path, callbacks: list[pl.Callback], steps: int = 5) -> dict[str, float]:
    torch.manual_seed(1)
    batches = PictureBatches(coloured(30), 10, 0)
    return fit(
        method,
        batches,
        steps=steps,
        precision="fp32",
        log_every=5,
        metrics_csv=out / "metrics.csv",
        progress=lambda *_: None,
        callbacks=callbacks,
    )


def rows_of(path: Path) -> list[dict[str, float]]:
    with path.open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_looks_at_the_start_every_few_steps_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    callback = KnnCallback(coloured(30), coloured(12, seed=1), SPEC, path, every_steps=2, steps=5, k=5)
    run(Method(), tmp_path, [callback])
    rows = rows_of(path)
    assert [row["step"] for row in rows] == [0, 2, 4, 5]
    assert set(rows[0]) == {"step", "seconds", "knn_accuracy", "feature_std", "feature_rank"}
    assert callback.last["step"] == 5
    assert callback.last["knn_accuracy"] == 1.0
    assert rows[0]["seconds"] <= rows[1]["seconds"] <= rows[3]["seconds"]


def test_without_an_interval_only_the_end_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    run(Method(), tmp_path, [KnnCallback(coloured(30), None, SPEC, path, every_steps=0, steps=5)])
    assert [row["step"] for row in rows_of(path)] == [5]


def test_the_seconds_of_a_run_that_goes_on_count_on(tmp_path: Path) -> None:
    first = KnnCallback(coloured(30), None, SPEC, tmp_path / "e.csv", every_steps=0, steps=1)
    first.load_state_dict({"seconds": 1000.0})
    assert 1000 < first.look(Method().net, 3)["seconds"] < 1100
    assert 1000 < first.state_dict()["seconds"] < 1100


def test_training_does_not_notice(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    watched, plain = Method(), Method()
    callback = KnnCallback(coloured(30), None, SPEC, tmp_path / "evaluations.csv", every_steps=1, steps=5)
    run(watched, tmp_path / "a", [callback])
    run(plain, tmp_path / "b", [])
    assert watched.modes == [True] * 5
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(watched.state_dict()[name], value, rtol=0, atol=0)


def test_voters_do_not_vote_for_themselves(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = tuple(str(i) for i in range(200))
    noise = PictureSet(
        rng.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8), rng.integers(0, 4, 200), tuple("abcd"), names, names, {}
    )
    callback = KnnCallback(noise, None, SPEC, tmp_path / "e.csv", every_steps=0, steps=1, k=1)
    assert callback.look(Method().net, 0)["knn_accuracy"] < 0.5


def test_a_large_bank_is_cut_evenly(tmp_path: Path) -> None:
    callback = KnnCallback(coloured(90), None, SPEC, tmp_path / "e.csv", every_steps=0, steps=1, most=30)
    assert np.bincount(callback._bank.labels).tolist() == [10, 10, 10]


def test_a_test_set_of_other_classes_is_refused_before_training(tmp_path: Path) -> None:
    strange = coloured(6, classes=("red", "pink"))
    with pytest.raises(DataError, match="pink"):
        KnnCallback(coloured(30), strange, SPEC, tmp_path / "e.csv", every_steps=0, steps=1)


def test_features_of_many_pictures_are_measured_on_some() -> None:
    features = torch.randn(5000, 8, generator=torch.Generator().manual_seed(0))
    found = feature_measures(features)
    assert found["feature_std"] == pytest.approx(8**-0.5, rel=0.05)
    assert 7 < found["feature_rank"] <= 8
    assert feature_measures(features[:1]) == {"feature_std": 0.0, "feature_rank": 1.0}
