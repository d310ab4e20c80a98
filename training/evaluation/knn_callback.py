"""Looks at the encoder during training: nearest neighbours, spread and rank of its features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.collapse.measures import effective_rank, std_per_dimension
from twinlens.training.csv_rows import append_row
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.evaluation.features import embed_pictures
from twinlens.training.evaluation.knn import accuracy, knn_votes
from twinlens.training.evaluation.labelled import Labelled, labelled, stratified
from twinlens.training.training_clock import TrainingClock

# Rows that the rank is taken of: enough for any width of features, and the decomposition stays under a second.
_RANK_ROWS = 2048


class KnnCallback(pl.Callback):
    """Classifies held-out pictures by the training pictures nearest to them (Wu et al. 2018), every so many steps.

    It looks at what the method would export: features, not projections. Rows go to a CSV file: `step`; `seconds` of
    training, without these looks; `knn_accuracy`; `feature_std`, the mean over dimensions of the normalised features'
    standard deviation; `feature_rank`, the effective rank of the features.

    Attributes:
        last: The last row, empty before the first look.
    """

    def __init__(
        self,
        pictures: PictureSet,
        test: PictureSet | None,
        preprocess: PreprocessSpec,
        evaluations_csv: Path,
        *,
        every_steps: int,
        steps: int,
        k: int = 20,
        temperature: float = 0.07,
        most: int = 20_000,
        seed: int = 0,
    ) -> None:
        """Chooses what to look at.

        Args:
            pictures: Of training; those with a class vote.
            test: Classified by them; None: the voters themselves, each by the others.
            preprocess: Of the exported encoder.
            evaluations_csv: Where the rows go.
            every_steps: How often; 0: only at the end.
            steps: Of the run; after the last one there is a look in any case.
            k: Neighbours.
            temperature: Of their weights.
            most: Voters at most, drawn evenly from all classes, so that a look at a large set stays short.
            seed: Of that draw.

        Raises:
            DataError: if no picture has a class, or a class of `test` is unknown.
        """
        self._bank = _at_most(labelled(pictures), most, seed)
        self._test = None if test is None else labelled(test, self._bank.classes)
        self._preprocess = preprocess
        self._path = evaluations_csv
        self._every = every_steps
        self._steps = steps
        self._k = k
        self._temperature = temperature
        self._clock = TrainingClock()
        self.last: dict[str, float] = {}

    def look(self, backbone: nn.Module, step: int) -> dict[str, float]:
        """Measures the backbone as it is, writes the row, and returns it."""
        seconds = self._clock.seconds
        with self._clock.stopped():
            bank = embed_pictures(backbone, self._bank.pixels_nhwc, self._preprocess)
            bank_labels = torch.from_numpy(self._bank.labels)
            test, test_labels = bank, bank_labels
            if self._test is not None:
                test = embed_pictures(backbone, self._test.pixels_nhwc, self._preprocess)
                test_labels = torch.from_numpy(self._test.labels)
            votes = knn_votes(
                test,
                bank,
                bank_labels,
                len(self._bank.classes),
                k=self._k,
                temperature=self._temperature,
                leave_one_out=self._test is None,
            )
            self.last = {
                "step": float(step),
                "seconds": seconds,
                "knn_accuracy": accuracy(votes, test_labels),
                **feature_measures(test),
            }
            append_row(self._path, self.last)
        return self.last

    def state_dict(self) -> dict[str, Any]:
        """The seconds of training so far, so that a run that goes on counts on."""
        return {"seconds": self._clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes them up again."""
        self._clock.resume(float(state_dict["seconds"]))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The clock starts; a look at the untrained encoder shows what training adds."""
        self._clock.start()
        if trainer.is_global_zero and trainer.global_step == 0 and self._every:
            self._look(pl_module, 0)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002 - Lightning's signature
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """A look where one is due."""
        step = trainer.global_step
        due = step == self._steps or (self._every > 0 and step % self._every == 0)
        if trainer.is_global_zero and due:
            self._look(pl_module, step)

    def _look(self, pl_module: Any, step: int) -> None:
        self.look(pl_module.exported(), step)


def feature_measures(features_nd: Tensor) -> dict[str, float]:
    """How spread out features are: `feature_std` and `feature_rank`, of at most 2,048 rows."""
    rows = features_nd[:: max(1, -(-len(features_nd) // _RANK_ROWS))]
    if len(rows) < 2:
        return {"feature_std": 0.0, "feature_rank": 1.0}
    return {"feature_std": float(std_per_dimension(rows).mean()), "feature_rank": float(effective_rank(rows))}


def _at_most(pictures: Labelled, most: int, seed: int) -> Labelled:
    if len(pictures) <= most:
        return pictures
    return pictures.taken(stratified(pictures.labels, most / len(pictures), seed))
