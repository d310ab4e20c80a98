"""Configurations of runs on pictures alone that are over in a second, for every method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinlens.training.image_config import ImageTrainConfig, read_image_config
from twinlens.training.methods.registry import image_method
from twinlens.training.progress import Report

SMALL_RESNET = [
    "model.timm=resnet18",
    "model.stem=cifar_stride2",
    "model.arguments={layers = [1, 1, 1, 1], channels = [8, 8, 16, 16]}",
]
SMALL_VIT = ["model.arguments={patch_size = 8, embed_dim = 16, depth = 1, num_heads = 2}"]


def small_run(method: str, pictures: Path, *settings: str) -> ImageTrainConfig:
    """A run of four steps of eight pictures; `settings` as the command takes them come last."""
    given = list(SMALL_VIT if method == "mae" else SMALL_RESNET)
    given += ["augment.size=32", "train.batch_size=8", "train.log_every=1", "train.precision=fp32"]
    given.append("train.steps=0" if method == "random" else "train.steps=4")
    given += [f"method.{name}={value}" for name, value in _narrow(method).items()]
    return read_image_config(method, pictures=pictures, settings=[*given, *settings])


def _narrow(method: str) -> dict[str, int]:
    fields = image_method(method).Options.model_fields
    wide = {"dim": 16, "hidden": 16, "prototypes": 16, "queue_size": 16, "permutations": 8}
    wide |= {
        "decoder_width": 16,
        "decoder_depth": 1,
        "decoder_heads": 2,
        "bottleneck": 16,
        "batch_norm_parts": 2,
        "queue_start_epoch": 0,
    }
    return {name: value for name, value in wide.items() if name in fields}


class Reports:
    """Keeps what a run reports; may end it as an interruption would."""

    def __init__(self, stop_at: int | None = None) -> None:
        """Raises `KeyError` at the report of step `stop_at`."""
        self.rows: list[dict[str, float]] = []
        self._stop_at = stop_at

    @contextmanager
    def __call__(self, steps: int) -> Iterator[Report]:  # noqa: ARG002 - the run's signature
        """As `train_images` wants it."""

        def report(step: int, values: dict[str, Any]) -> None:
            if not values:  # steps went by, no more
                return
            self.rows.append(values)
            if step == self._stop_at:
                raise KeyError(f"stopped at step {step}")

        yield report
