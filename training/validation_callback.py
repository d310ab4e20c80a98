"""Looks at a dual encoder on held-out data every so many steps, and keeps the best one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from twinlens.training.csv_rows import append_row
from twinlens.training.evaluation.features import as_evaluated
from twinlens.training.methods.clip import Clip
from twinlens.training.progress import Report
from twinlens.training.training_clock import TrainingClock


@dataclass(frozen=True)
class Validation:
    """What is measured during a run, and when.

    Attributes:
        measure: Gives the measures of `Clip.trained` by name, the same at every look.
        every: Steps between two looks; 0: only at the start and at the end.
        best_by: The measure that tells the best step: the higher, the better.
    """

    measure: Callable[[Clip], dict[str, float]]
    every: int
    best_by: str


class ValidationCallback(pl.Callback):
    """Measures what a checkpoint would hold: at the start, every so many steps and at the end.

    Rows go to a CSV file: `step`; `seconds` of training, without these looks; and every measure. They are taken by the
    first process, in evaluation mode and without gradients; the random numbers of the run do not notice.

    Attributes:
        last: The last row, empty before the first look.
        best: The row of the best step, empty before the first look after step 0.
    """

    def __init__(
        self,
        validation: Validation,
        evaluations_csv: Path,
        *,
        steps: int,
        save_best: Callable[[Clip, dict[str, float]], None],
        told: Report,
    ) -> None:
        """Takes what to measure, and when.

        Args:
            validation: What, and how often.
            evaluations_csv: Where the rows go.
            steps: Of the run.
            save_best: Called with the method and the row where a step is better than all before.
            told: Called with the step and the measures.
        """
        self._validation = validation
        self._path = evaluations_csv
        self._steps = steps
        self._save_best = save_best
        self._told = told
        self._clock = TrainingClock()
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """The seconds of training so far, and what is best, so that a run that goes on does so from there."""
        return {"seconds": self._clock.seconds, "last": self.last, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes them up again."""
        self._clock.resume(float(state_dict["seconds"]))
        self.last, self.best = dict(state_dict["last"]), dict(state_dict["best"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A look at what the run starts from."""
        self._clock.start()
        if trainer.global_step == 0:
            self._look(trainer, pl_module)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002 - Lightning's signature
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """A look where one is due.

        Raises:
            CheckpointError: if the best checkpoint cannot be written; the one before stays.
        """
        step = trainer.global_step
        if step == self._steps or (self._validation.every > 0 and step % self._validation.every == 0):
            self._look(trainer, pl_module)

    def measure(self, method: Clip) -> dict[str, float]:
        """The measures of the method as it is; it does not notice."""
        with as_evaluated(method), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            return self._validation.measure(method)

    def _look(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:  # the others wait for it at their next step
            return
        assert isinstance(pl_module, Clip)  # noqa: S101 - for the type checker
        step, seconds = trainer.global_step, self._clock.seconds
        with self._clock.stopped():
            measures = self.measure(pl_module)
            self.last = {"step": float(step), "seconds": seconds, **measures}
            append_row(self._path, self.last)
            self._told(step, measures)
            best_by = self._validation.best_by
            # What a run starts from is no result of it.
            if step > 0 and measures[best_by] > self.best.get(best_by, -math.inf):
                self.best = self.last
                self._save_best(pl_module, self.last)
