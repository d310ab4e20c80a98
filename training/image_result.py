"""What a run on pictures alone left behind, in words and for scripts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.training.csv_rows import read_columns
from twinlens.training.data.picture_set import left_out
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.run_files import EVALUATIONS_FILE


@dataclass(frozen=True)
class ImageTrainResult:
    """What a run left behind.

    Attributes:
        checkpoint: The file.
        pictures: How many pictures it was trained on.
        steps: Of the optimiser.
        unreadable: What was left out, and why.
        last: The last report of the loop.
        knn: The last accuracy by nearest neighbours, 0 to 1; None where pictures have no classes.
        knn_before: The same before the first step; None where it was not measured.
        held_out: Whether it is of pictures that were not trained on.
        method: As trained, with the heads that the checkpoint leaves behind.
    """

    checkpoint: Path
    pictures: int
    steps: int
    unreadable: dict[str, str]
    last: dict[str, float]
    knn: float | None
    knn_before: float | None
    held_out: bool
    method: ImageMethod

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "checkpoint": str(self.checkpoint),
            "pictures": self.pictures,
            "steps": self.steps,
            "unreadable": self.unreadable,
            "metrics": self.last,
            "knn": self.knn,
            "knn_before": self.knn_before,
        }

    def told(self) -> str:
        """In a few words."""
        told = f"{self.steps} steps on {self.pictures:,} pictures"
        if self.knn is None:
            return told
        before = "" if self.knn_before is None else f" (before training {self.knn_before:.3f})"
        of = "knn.test" if self.held_out else "the training pictures, each by the others"
        return f"{told}, kNN accuracy {self.knn:.3f}{before} on {of}"

    def warnings(self) -> list[str]:
        """What a person should know: what was left out, once, with the first of its kind."""
        return left_out(self.unreadable)


def knn_before(out: Path) -> float | None:
    """The accuracy by nearest neighbours before the first step, from the table: a resumed run has not seen it."""
    path = out / EVALUATIONS_FILE
    rows = read_columns(path) if path.exists() else {}
    at_first = [
        value for step, value in zip(rows.get("step", ()), rows.get("knn_accuracy", ()), strict=True) if not step
    ]
    return at_first[0] if at_first else None
