"""What became of each reduced file that was asked for, for people and for scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinlens.encoders.manifest import Agreement, Manifest, Precision
from twinlens.encoders.runtime import Tower
from twinlens.training.export.variants.gate import Judgement
from twinlens.training.export.variants.samples import Samples


@dataclass(frozen=True)
class Outcome:
    """One tower in one precision.

    Attributes:
        tower: Which.
        precision: Which.
        judgement: How it compares with fp32.
        kept: Nodes that stayed in fp32.
        share: Part of the multiply-adds (by weights) in the reduced precision.
        speedups: Over fp32 on the CPU, by batch size; empty where speed there does not matter.
        refused: Why it was not written; empty if it was.
    """

    tower: Tower
    precision: Precision
    judgement: Judgement
    kept: tuple[str, ...] = ()
    share: float = 1.0
    speedups: Mapping[int, float] = field(default_factory=dict)
    refused: str = ""

    @property
    def speedup(self) -> float:
        """Geometric mean over the batch sizes; 1 where none was measured."""
        values = list(self.speedups.values())
        return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0

    def agreement(self, data: str) -> Agreement:
        """What the manifest says of it."""
        return Agreement(
            mean_cosine=round(self.judgement.mean_cosine, 6),
            worst_cosine=round(self.judgement.worst_cosine, 6),
            recall_at_10_drop=_rounded(self.judgement.recall_drop),
            top1_drop=_rounded(self.judgement.top1_drop),
            items=self.judgement.items,
            fp32_nodes=self.kept,
            data=data,
        )

    def line(self) -> str:
        """For people."""
        measured = self.judgement
        parts = [f"cosine mean {measured.mean_cosine:.4f}, worst {measured.worst_cosine:.4f} of {measured.items}"]
        if measured.recall_drop is not None:
            what = "recall@10" if measured.by_captions else "nearest neighbours"
            parts.append(f"{what} {-measured.recall_drop:+.2f} points")
        parts += [f"top-1 on {name} {-drop:+.2f} points" for name, (drop, _) in measured.top1_drops.items()]
        if self.precision == "int8":
            parts.append(f"{self.share:.0%} of the multiply-adds in int8")
        if self.kept:
            parts.append(f"{len(self.kept)} nodes kept in fp32")
        parts += [f"×{ratio:.1f} at batch {batch}" for batch, ratio in self.speedups.items()]
        verdict = f"NOT WRITTEN: {self.refused}; " if self.refused else "written: "
        return f"{self.tower} {self.precision} {verdict}{', '.join(parts)}"

    def fields(self) -> dict[str, Any]:
        """For scripts."""
        measured = self.judgement
        return {
            "tower": self.tower,
            "precision": self.precision,
            "written": not self.refused,
            "refused": self.refused or None,
            "mean_cosine": measured.mean_cosine,
            "worst_cosine": measured.worst_cosine,
            "items": measured.items,
            "recall_at_10_drop": measured.recall_drop,
            "recall_queries": measured.recall_queries,
            "recall_by_captions": measured.by_captions,
            "top1_drops": {name: drop for name, (drop, _) in measured.top1_drops.items()},
            "neighbours_overlap": measured.overlap,
            "fp32_nodes": list(self.kept),
            "int8_share": self.share if self.precision == "int8" else None,
            "speedups": {str(batch): ratio for batch, ratio in self.speedups.items()},
        }


@dataclass(frozen=True)
class VariantReport:
    """All outcomes, and the manifest of the new bundle if anything was written."""

    outcomes: tuple[Outcome, ...]
    manifest: Manifest | None
    unreadable: int = 0

    @property
    def written(self) -> tuple[Outcome, ...]:
        """Those that passed."""
        return tuple(outcome for outcome in self.outcomes if not outcome.refused)


def data_for_people(samples: Samples, judgement: Judgement) -> str:
    """What was measured on, and how finely."""
    parts = []
    if len(samples.gate_pixels):
        parts.append(f"{len(samples.gate_pixels)} held-out pictures")
    if samples.gate_texts:
        parts.append(f"{len(samples.gate_texts)} held-out texts")
    parts += [f"{len(labels.labels)} labelled pictures of {labels.name}" for labels in samples.labelled]
    if judgement.recall_queries:
        what = "captions finding their picture" if judgement.by_captions else "nearest neighbours kept among the ten"
        parts.append(
            f"recall: {what}, one of {judgement.recall_queries} is {100 / judgement.recall_queries:.2f} points"
        )
    return "; ".join(parts)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
