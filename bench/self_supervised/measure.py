"""Trains one row of the table for its budget and judges the encoder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from bench.self_supervised.rows import ABLATION, Row
from twinlens.training.data.picture_sources import list_pictures
from twinlens.training.evaluation.curves import curves_of
from twinlens.training.evaluation.features import as_evaluated, embed_pictures
from twinlens.training.evaluation.labelled import labelled
from twinlens.training.evaluation.linear_probe import linear_probe
from twinlens.training.evaluation.probe import ProbeRequest, probe
from twinlens.training.image_config import ImageTrainConfig, read_image_config
from twinlens.training.image_plan import load, preprocess_of
from twinlens.training.methods.simclr import SimCLR
from twinlens.training.progress import Report
from twinlens.training.train_images import train_images

Clock = Literal["wall", "cpu"]
# Steps of the two short runs whose difference tells what a step costs.
_FEW, _MORE = 4, 16
_LOOKS = 8
_LOW_SHOT = (0.01, 0.1)


@dataclass(frozen=True)
class Figures:
    """What became of a row.

    Attributes:
        knn: Accuracy of weighted nearest neighbours on the test pictures, 0 to 1; so for the other accuracies.
        linear_behind_head: Of the projections (z) where `linear` is of the features (h); SimCLR only.
        std: Mean over dimensions of the normalised features' standard deviation, in units of the best possible, 1/√d.
        rank: Effective rank of the normalised features.
        images_per_s: Training pictures a second, while nothing is judged.
        seconds: Of training.
        curve: (minutes, kNN accuracy) during training.
    """

    name: str
    method: str
    family: str
    steps: int
    epochs: float
    seconds: float
    images_per_s: float
    knn: float
    linear: float
    linear_behind_head: float | None
    low_shot: dict[str, float]
    std: float
    rank: float
    dim: int
    curve: list[tuple[float, float]]


def measure(
    row: Row, data: Path, *, minutes: float, clock: Clock, seed: int, settings: tuple[str, ...] = ()
) -> Figures:
    """One run of `minutes`, then kNN, linear probe and fine-tuning on few pictures.

    Args:
        row: What to train.
        data: Holds `train` and `test`.
        minutes: Of training on `clock`.
        clock: `cpu` counts what this process computes, for machines that do other things as well.
        seed: Of everything.
        settings: Over all others.
    """
    every = (*row.all_settings(), f"train.seed={seed}", *settings)

    def config(*more: str) -> ImageTrainConfig:
        return read_image_config(row.method, pictures=data / "train", settings=(*every, *more), ablate=row.ablate)

    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        steps = 0 if row.untrained else max(1, int(minutes * 60 / _cost(config, runs, clock)))
        batch_size = config().train.batch_size
        epochs = steps * batch_size / len(list_pictures(data / "train").pictures)
        run = runs / "run"
        began_s = time.process_time()
        final = config(f"train.steps={steps}", f'knn.test="{data / "test"}"', f"knn.every_epochs={epochs / _LOOKS}")
        method = train_images(final, run, _silent).method
        print(f"{row.name}: {steps} steps, {time.process_time() - began_s:.0f} s of processor time", flush=True)
        # The answers to the ablations are in kNN and linear probe; fine-tuning would double what their short runs take.
        shares = () if row.family == ABLATION else _LOW_SHOT
        request = ProbeRequest(run, data / "train", data / "test", shares=shares, seed=seed)
        result = probe(request, _silent).result
        seconds = 60 * minutes if steps else 0.0
        return Figures(
            name=row.name,
            method=row.method,
            family=row.family,
            steps=steps,
            epochs=epochs,
            seconds=seconds,
            images_per_s=steps * batch_size / seconds if steps else 0.0,
            knn=result.knn,
            linear=result.linear,
            linear_behind_head=_behind_head(method, final, data) if isinstance(method, SimCLR) else None,
            low_shot={f"{each.share:g}": each.accuracy for each in result.low_shot},
            std=result.feature_std * result.dimension**0.5,
            rank=result.feature_rank,
            dim=result.dimension,
            curve=_curve(run, minutes / max(1, steps)),
        )


def _behind_head(method: SimCLR, config: ImageTrainConfig, data: Path) -> float:
    """The linear probe of the projections: the layer before the head is the better one (SimCLR, figure 8)."""
    train = labelled(load(config, data / "train"))
    test = labelled(load(config, data / "test"), train.classes)
    projected = []
    for each in (train, test):
        features = embed_pictures(method.exported(), each.pixels_nhwc, preprocess_of(config))
        with as_evaluated(method.head):
            projected.append(method.head(features))
    labels = [torch.from_numpy(each.labels) for each in (train, test)]
    return linear_probe(projected[0], labels[0], projected[1], labels[1], len(train.classes)).accuracy


def _cost(config: Callable[..., ImageTrainConfig], runs: Path, clock: Clock) -> float:
    """Seconds a step, from two short runs."""
    taken = {}
    for steps in (_FEW, _MORE):
        final = config(f"train.steps={steps}", "knn.every_epochs=0", "data.limit=2000")
        began_s = _now_s(clock)
        train_images(final, runs / f"cost-{steps}", _silent)
        taken[steps] = _now_s(clock) - began_s
    return (taken[_MORE] - taken[_FEW]) / (_MORE - _FEW)


def _now_s(clock: Clock) -> float:
    return time.process_time() if clock == "cpu" else time.perf_counter()


def _curve(run: Path, minutes_per_step: float) -> list[tuple[float, float]]:
    curve = curves_of(run)["knn_accuracy"]
    return [(step * minutes_per_step, accuracy) for step, accuracy in zip(curve.x, curve.y, strict=True)]


@contextmanager
def _silent(*_: object) -> Iterator[Report]:
    yield lambda *_: None
