"""A method of a few weights, for what the loop does whatever is trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from twinlens.training.csv_rows import read_columns
from twinlens.training.loop import fit
from twinlens.training.optimiser import adamw, scheduled


@dataclass
class ToyBatch:
    """Rows of numbers, of which the batches at `broken` have one that is not finite."""

    rows: Tensor
    number: int
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        self.samples = len(self.rows)


class ToyBatches(IterableDataset[ToyBatch]):
    """Batch i is drawn from i alone."""

    def __init__(self, *, broken: set[int] = frozenset(), start: int = 0, n: int = 8) -> None:  # type: ignore[assignment]
        self._broken = broken
        self._start = start
        self._n = n

    def __iter__(self) -> Iterator[ToyBatch]:
        number = self._start
        while True:
            rows = torch.randn(self._n, 4, generator=torch.Generator().manual_seed(number))
            if number in self._broken:
                rows[0, 0] = torch.nan
            yield ToyBatch(rows, number)
            number += 1


class ToyMethod(pl.LightningModule):
    """Pulls what a linear layer and a batch norm make of rows towards one."""

    def __init__(self, learning_rate: float = 0.01) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        self._learning_rate = learning_rate
        self.before: list[dict[str, Tensor]] = []

    def training_step(self, batch: ToyBatch, batch_idx: int) -> dict[str, Tensor]:  # noqa: ARG002
        self.before.append({name: value.clone() for name, value in self.net.state_dict().items()})
        return {"loss": (self.net(batch.rows) - 1).float().pow(2).mean()}

    def configure_optimizers(self) -> Any:
        optimiser = adamw(self, learning_rate=self._learning_rate, weight_decay=0.1)
        return scheduled(optimiser, lambda step: 1 / (1 + step))


def fit_toy(
    folder: Path, *, method: ToyMethod | None = None, broken: set[int] | None = None, steps: int = 4, **settings: Any
) -> dict[str, list[float]]:
    """The columns of the table that the loop writes in `folder`; `settings` go over those of `fit`."""
    table = folder / "metrics.csv"
    given = {"precision": "fp32", "log_every": 1, "progress": lambda *_: None, "threads": 1, **settings}
    fit(method or ToyMethod(), ToyBatches(broken=broken or set()), steps=steps, metrics_csv=table, **given)
    return read_columns(table)
