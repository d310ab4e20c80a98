"""What an evaluation found: measures for people and for scripts, and what figures are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from twinlens.training.evaluation.bundles.embedder import EvaluatedModel
from twinlens.training.evaluation.bundles.figures import Figure

Kind = Literal["retrieval", "zero_shot", "compositional", "pairs"]


@dataclass(frozen=True)
class Measure:
    """One figure.

    Attributes:
        name: For scripts.
        told: For people.
        value: Measured.
        chance: What guessing would give; None where that means nothing.
        digits: After the point, for people.
    """

    name: str
    told: str
    value: float
    chance: float | None = None
    digits: int = 3


@dataclass(frozen=True)
class SetResult:
    """What was found on one set.

    Attributes:
        kind: What was asked.
        name: Of the set.
        source: Its file or folder.
        counts: How many pictures, captions, classes… counted.
        measures: The most telling first.
        details: More for scripts, as JSON takes it.
        figures: For the report.
        unusable: What was left out, and why.
        notes: Lines for people.
    """

    kind: Kind
    name: str
    source: Path
    counts: Mapping[str, int]
    measures: tuple[Measure, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def value(self, name: str) -> float:
        """A measure by its name."""
        return next(measure.value for measure in self.measures if measure.name == name)

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "kind": self.kind,
            "name": self.name,
            "source": str(self.source),
            **self.counts,
            "measures": {measure.name: measure.value for measure in self.measures},
            "chance": {measure.name: measure.chance for measure in self.measures if measure.chance is not None},
            **self.details,
            "unusable": dict(self.unusable),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Evaluation:
    """Everything that was found on a model.

    Attributes:
        model: Who was measured.
        sets: On what, and what was found.
    """

    model: EvaluatedModel
    sets: tuple[SetResult, ...]

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        return {"model": asdict(self.model), "sets": [each.summary() for each in self.sets]}
