"""From cosines to probabilities, by the checkpoint's own rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.manifest import ScoringRule

FloatArray = NDArray[np.float64]


def cosines_with(pictures: FloatArray, targets: NDArray[np.float32]) -> FloatArray:
    """Cosines of unit vectors, each in [-1, 1], in double precision.

    The targets are made doubles for every block of pictures: kept, these would take tens of megabytes for each stream
    as long as it lasts.

    Args:
        pictures: Shape (n, d).
        targets: Shape (labels, d), or (d,).

    Returns:
        Shape (n, labels), or (n,).
    """
    return np.clip(pictures @ targets.astype(np.float64).T, -1.0, 1.0)


def probabilities(
    rule: ScoringRule, cosines: FloatArray, *, multi_label: bool, neutral: FloatArray | None = None
) -> FloatArray:
    """Probabilities of labels.

    - A `sigmoid` model (SigLIP, Zhai et al. 2023) judges each label on its own, asked for or not:
      sigmoid(scale * cosine + bias).
    - A `softmax` model (CLIP, Radford et al. 2021) chooses among the labels: softmax(scale * cosine).
    - A `softmax` model asked for `multi_label` chooses, for each label on its own, between the label and a prompt
      that says nothing (the templates around "thing"): a softmax over these two, which is
      sigmoid(scale * (cosine - neutral cosine)). So a label's probability does not depend on the other labels.

    Args:
        rule: The manifest's rule.
        cosines: Shape (n, labels).
        multi_label: Judge each label on its own.
        neutral: Cosine of each picture and the neutral prompt, shape (n,); needed for a softmax model with
            `multi_label`.

    Returns:
        Shape (n, labels), each in [0, 1].

    Raises:
        ValueError: if `neutral` is needed and missing.
    """
    if rule.rule == "sigmoid":
        return _sigmoid(rule.scale * cosines + rule.bias)
    if multi_label:
        if neutral is None:
            raise ValueError("a softmax model needs the neutral cosine to judge labels on their own")
        return _sigmoid(rule.scale * (cosines - neutral[:, None]))
    return softmax(rule.scale * cosines)


def softmax(logits: FloatArray) -> FloatArray:
    """Over the last axis of shape (n, labels)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _sigmoid(logits: FloatArray) -> FloatArray:
    # exp of a non-positive number only: never overflows.
    small = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1.0, small) / (1.0 + small))
