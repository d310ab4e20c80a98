"""Winoground's scores: two pictures and two captions that are made of the same words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Of guessing: both answers of a kind by chance are 1/4, and all four comparisons hold at once in 1/6 of all orders.
TEXT_CHANCE = 1 / 4
IMAGE_CHANCE = 1 / 4
GROUP_CHANCE = 1 / 6


@dataclass(frozen=True)
class PairScores:
    """Shares of the rows that were got wholly right (Thrush et al. 2022, eqs. 1-3).

    Attributes:
        text: Each of both pictures is nearer to its own caption.
        image: Each of both captions is nearer to its own picture.
        group: Both of these.
    """

    text: float
    image: float
    group: float


def pair_scores(image_n2d: NDArray[np.floating], text_n2d: NDArray[np.floating]) -> PairScores:
    """Scores rows of two pictures and two captions, of which caption i belongs to picture i; a tie counts as wrong.

    With s(C, I) the cosine: f = s(C0, I0) > s(C1, I0) and s(C1, I1) > s(C0, I1); g = s(C0, I0) > s(C0, I1) and
    s(C1, I1) > s(C1, I0); h = f and g.

    Args:
        image_n2d: Unit vectors, shape (n, 2, d).
        text_n2d: Unit vectors, shape (n, 2, d).

    Raises:
        ValueError: if shapes differ, something is empty, or a vector is not finite.
    """
    images, texts = np.asarray(image_n2d, dtype=np.float64), np.asarray(text_n2d, dtype=np.float64)
    if images.ndim != 3 or images.shape[1] != 2 or images.shape != texts.shape or 0 in images.shape:
        raise ValueError(f"vectors of shape (n, 2, d) are needed, got {images.shape} and {texts.shape}")
    if not (np.isfinite(images).all() and np.isfinite(texts).all()):
        raise ValueError("some vectors are not finite")
    # The same sums in the same order for every cell, so that equal vectors tie exactly.
    score = (texts[:, :, None, :] * images[:, None, :, :]).sum(axis=3)
    right_0, right_1 = score[:, 0, 0], score[:, 1, 1]
    text = (right_0 > score[:, 1, 0]) & (right_1 > score[:, 0, 1])
    image = (right_0 > score[:, 0, 1]) & (right_1 > score[:, 1, 0])
    return PairScores(float(text.mean()), float(image.mean()), float((text & image).mean()))
