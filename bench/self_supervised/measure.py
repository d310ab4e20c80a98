"""Trains one row of the table for its budget and judges the encoder."""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from bench.self_supervised.rows import Row
from twinlens.training.collapse.measures import effective_rank, std_per_dimension
from twinlens.training.evaluation.features import as_evaluated, embed_pictures
from twinlens.training.evaluation.knn import accuracy, knn_votes
from twinlens.training.evaluation.labelled import labelled
from twinlens.training.evaluation.linear_probe import linear_probe
from twinlens.training.evaluation.low_shot import low_shot
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.image_config import ImageTrainConfig, read_image_config
from twinlens.training.image_plan import load
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
    settings = (*row.all_settings(), f"train.seed={seed}", *settings)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)

        def config(*more: str) -> ImageTrainConfig:
            return read_image_config(
                row.method, pictures=data / "train", settings=(*settings, *more), ablate=row.ablate
            )

        trained = not row.untrained
        steps = 0
        if trained:
            per_step_s = _cost(config, runs, clock)
            steps = max(1, int(minutes * 60 / per_step_s))
        final = config(f"train.steps={steps}", f'knn.test="{data / "test"}"')
        epochs = steps * final.train.batch_size / 10_000
        if trained:
            final = config(f"train.steps={steps}", f'knn.test="{data / "test"}"', f"knn.every_epochs={epochs / _LOOKS}")
        run = runs / "run"
        began_s = time.process_time()
        method = train_images(final, run, _silent).method
        print(f"{row.name}: {steps} steps, {time.process_time() - began_s:.0f} s of processor time", flush=True)
        curve = _curve(run / "evaluations.csv", minutes / max(1, steps))
        spec, backbone, _ = load_image_checkpoint(run / "checkpoint.pt")
        train_set = labelled(load(final, data / "train"))
        test_set = labelled(load(final, data / "test"), train_set.classes)
        bank = embed_pictures(backbone, train_set.pixels_nhwc, spec.preprocess)
        queries = embed_pictures(backbone, test_set.pixels_nhwc, spec.preprocess)
        bank_labels, query_labels = torch.from_numpy(train_set.labels), torch.from_numpy(test_set.labels)
        classes = len(train_set.classes)
        linear = linear_probe(bank, bank_labels, queries, query_labels, classes).accuracy
        head: nn.Module | None = getattr(method, "head", None) if row.method == "simclr" else None
        behind_head = None
        if head is not None:  # figure 8 of SimCLR: the layer before the head is the better one
            with as_evaluated(head):
                behind_head = linear_probe(head(bank), bank_labels, head(queries), query_labels, classes).accuracy
        shots = {
            f"{share:g}": low_shot(backbone, train_set, test_set, spec.preprocess, share, seed=seed).accuracy
            for share in _LOW_SHOT
        }
        return Figures(
            name=row.name,
            method=row.method,
            family=row.family,
            steps=steps,
            epochs=epochs,
            seconds=60 * minutes if trained else 0.0,
            images_per_s=steps * final.train.batch_size / (60 * minutes) if trained else 0.0,
            knn=accuracy(knn_votes(queries, bank, bank_labels, classes), query_labels),
            linear=linear,
            linear_behind_head=behind_head,
            low_shot=shots,
            std=float(std_per_dimension(queries).mean()) * bank.shape[1] ** 0.5,
            rank=float(effective_rank(queries)),
            dim=bank.shape[1],
            curve=curve,
        )


def as_json(figures: Figures) -> dict[str, object]:
    """For the row's file."""
    return asdict(figures)


def _cost(config: object, runs: Path, clock: Clock) -> float:
    """Seconds a step, from two short runs."""
    taken = {}
    for steps in (_FEW, _MORE):
        final = config(f"train.steps={steps}", "knn.every_epochs=0", "data.limit=2000")  # type: ignore[operator]
        began_s = _now_s(clock)
        train_images(final, runs / f"cost-{steps}", _silent)
        taken[steps] = _now_s(clock) - began_s
    return (taken[_MORE] - taken[_FEW]) / (_MORE - _FEW)


def _now_s(clock: Clock) -> float:
    return time.process_time() if clock == "cpu" else time.perf_counter()


def _curve(path: Path, minutes_per_step: float) -> list[tuple[float, float]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [(int(row["step"]) * minutes_per_step, float(row["knn_accuracy"])) for row in csv.DictReader(file)]


@contextmanager
def _silent(steps: int) -> Iterator[Report]:
    del steps
    yield lambda *_: None
