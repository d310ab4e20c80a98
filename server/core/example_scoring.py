"""From cosines with examples to probabilities of their labels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.scoring import FloatArray, softmax

MAX_K = 10_000
_COOLEST, _WARMEST = 1e-3, 100.0


class ExampleRule(StrEnum):
    """How examples become scores: see `prototype_probabilities` and `knn_probabilities`."""

    PROTOTYPE = "prototype"
    KNN = "knn"


@dataclass(frozen=True, slots=True)
class ExampleScoring:
    """How to score by examples.

    Attributes:
        rule: Which rule.
        k: How many examples vote; for KNN.
        temperature: Lower means surer. 0.07 is that of Wu et al. 2018.
        text_weight: Share of a label's text in its prototype, from 0 to 1; for PROTOTYPE.
    """

    rule: ExampleRule = ExampleRule.PROTOTYPE
    k: int = 20
    temperature: float = 0.07
    text_weight: float = 0.0

    def check(self) -> None:
        """Refuses what is out of range.

        Raises:
            ServiceError: INVALID_ARGUMENT.
        """
        if not 1 <= self.k <= MAX_K:
            raise invalid_argument(f"k is from 1 to {MAX_K}, not {self.k}")
        if not _COOLEST <= self.temperature <= _WARMEST:  # also refuses NaN, as below
            raise invalid_argument(f"temperature is from {_COOLEST:g} to {_WARMEST:g}, not {self.temperature:g}")
        if not 0.0 <= self.text_weight <= 1.0:
            raise invalid_argument(f"text_weight is from 0 to 1, not {self.text_weight:g}")
        if self.text_weight and self.rule is ExampleRule.KNN:
            raise invalid_argument("text_weight mixes texts into prototypes; the neighbours of rule KNN have none")


def prototype_probabilities(cosines: FloatArray, temperature: float) -> FloatArray:
    """softmax(cosine / temperature) over the labels, shape (pictures, labels).

    The checkpoint's own scale and bias do not apply: they were learned for pictures against texts.
    """
    return softmax(cosines / temperature)


def knn_probabilities(cosines: FloatArray, starts: NDArray[np.intp], k: int, temperature: float) -> FloatArray:
    """The labels' shares in the votes of the k nearest examples (Wu et al. 2018, section 3.4).

    The weight of label c is the sum of exp(cosine / temperature) over those of the k nearest examples that have it.
    Of examples that are equally near the earlier ones vote.

    Args:
        cosines: Of pictures and examples, these grouped by label, shape (pictures, n).
        starts: Where each label's group begins, none of them empty, shape (labels,).
        k: How many vote, at least 1; more than n means all.
        temperature: Above 0.

    Returns:
        Shape (pictures, labels); rows sum to 1.
    """
    votes = np.zeros_like(cosines)
    for row, cosine in zip(votes, cosines, strict=True):
        nearest = _nearest(cosine, k)
        # Relative to the nearest, so that nothing overflows; the shares stay the same.
        row[nearest] = np.exp((cosine[nearest] - cosine[nearest].max()) / temperature)
    weights = np.add.reduceat(votes, starts, axis=1)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _nearest(cosines: FloatArray, k: int) -> NDArray[np.intp]:
    """Positions of the k largest; of equal ones the first. Sorting all examples would cost far more."""
    if k >= len(cosines):
        return np.arange(len(cosines))
    border = np.partition(cosines, len(cosines) - k)[len(cosines) - k]
    above = np.flatnonzero(cosines > border)
    return np.concatenate([above, np.flatnonzero(cosines == border)[: k - len(above)]])
