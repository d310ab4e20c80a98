"""What every family hands over: towers ready to export, and what to say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.encoders.manifest import ScoringRule

if TYPE_CHECKING:
    from twinlens.training.export.towers import ImageExport, TextExport  # with torch: seconds

RANDOM_WEIGHTS = (
    "no weights named ({source}:TAG or {source}:FILE), so they are RANDOM: good for trying out formats and speed, not "
    "for searching"
)


@dataclass(frozen=True)
class PulledTowers:
    """A model as its towers.

    Attributes:
        image: The image tower, or None.
        text: The text tower, or None.
        name: A name for the bundle; characters that names may not have are replaced later.
        method: Where the weights come from, for the lineage.
        scoring: How cosines become probabilities.
        keep: Writes the checkpoint that training goes on from to the path it is given; None: there is no such form of
            the model.
    """

    image: ImageExport | None
    text: TextExport | None
    name: str
    method: str
    scoring: ScoringRule = field(default_factory=ScoringRule)
    keep: Callable[[Path], object] | None = None
