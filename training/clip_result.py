"""What a run of a dual encoder left behind, told to scripts and to people."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinlens.training.data.picture_set import left_out


@dataclass(frozen=True)
class TrainResult:
    """What a run left behind.

    Attributes:
        checkpoint: The file.
        steps: Of the optimiser.
        pairs: How many pairs it was trained on.
        unreadable: What was left out, and why.
        unknown_mined_rows: Rows of the hard-negative manifest that name no pair of the data.
        last: The last report of the loop.
        best: The row of the best step by what was validated; empty where nothing was.
        interpolated: `alpha`, the share of the trained weights in the checkpoint, the rest being its parent's, and what
            that is worth on the held-out data; empty where nothing was interpolated.
    """

    checkpoint: Path
    steps: int
    pairs: int
    unreadable: dict[str, str]
    unknown_mined_rows: int
    last: dict[str, float]
    best: dict[str, float] = field(default_factory=dict)
    interpolated: dict[str, float] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """For scripts; what is not finite (the loss of a skipped step) is null, for JSON has no word for it."""
        summary: dict[str, Any] = {
            "checkpoint": str(self.checkpoint),
            "pairs": self.pairs,
            "unreadable": self.unreadable,
            "unknown_mined_rows": self.unknown_mined_rows,
            "metrics": {name: value if math.isfinite(value) else None for name, value in self.last.items()},
        }
        more = {"best": self.best, "interpolated": self.interpolated}
        return {**summary, **{name: row for name, row in more.items() if row}}

    def told(self) -> str:
        """In a few words."""
        told = f"{self.steps} steps on {self.pairs:,} pairs"
        if not self.interpolated:
            return told
        if not self.interpolated["alpha"]:
            return f"{told}; no share of the trained weights is better on what is held out: those of its parent stay"
        return f"{told}; {self.interpolated['alpha']:.0%} of the way from its parent to the trained weights"

    def warnings(self) -> list[str]:
        """What a person should know: what was left out or skipped, once, with the first of its kind."""
        lines = left_out(self.unreadable, "unreadable")
        if self.unknown_mined_rows:
            lines.append(f"left out {self.unknown_mined_rows} mined row(s) that name no pair of the data")
        if skipped := int(self.last.get("skipped", 0)):
            lines.append(f"skipped {skipped} step(s) whose loss or gradient was not finite")
        return lines
