"""Retrieval and word-order measures over embeddings. Ties always count against the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Retrieval:
    """Recall@k by k, both ways.

    Attributes:
        text_to_image: Share of captions whose own picture is among the k nearest pictures.
        image_to_text: Share of pictures with one of their own captions among the k nearest captions.
    """

    text_to_image: dict[int, float]
    image_to_text: dict[int, float]


def retrieval(
    image_md: NDArray[np.floating],
    text_nd: NDArray[np.floating],
    image_of_text: NDArray[np.integer],
    ks: Sequence[int] = (1, 5, 10),
) -> Retrieval:
    """Recall@k with any number of captions a picture.

    A wrong item that scores the same as the right one stands before it, so constant embeddings score 0 wherever there
    are more than k wrong ones.

    Args:
        image_md: Unit vectors of m pictures, shape (m, d).
        text_nd: Unit vectors of n captions, shape (n, d).
        image_of_text: The picture that each caption belongs to, shape (n,).
        ks: At least 1 each.

    Raises:
        ValueError: if shapes differ, something is empty, a vector is not finite, or a k is below 1.
    """
    images, texts = _checked(image_md), _checked(text_nd)
    owners = np.asarray(image_of_text)
    if owners.shape != (len(texts),) or owners.min() < 0 or owners.max() >= len(images):
        raise ValueError("image_of_text must name a row of image_md for each row of text_nd")
    if not ks or min(ks) < 1:
        raise ValueError("every k must be at least 1")
    scores = texts @ images.T
    own = owners[:, None] == np.arange(len(images))[None, :]
    text_ranks = ranks_of_best(scores, own)
    has_caption = own.any(axis=0)
    image_ranks = ranks_of_best(scores.T[has_caption], own.T[has_caption])
    return Retrieval(recall(text_ranks, ks), recall(image_ranks, ks))


def ranks_of_best(scores: NDArray[np.floating], right: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each row, the place (from 1) of its best right column among the wrong ones; on a tie the wrong is first.

    Args:
        scores: Shape (n, m).
        right: Which columns are right for a row, shape (n, m); at least one each.
    """
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    ranks: NDArray[np.int64] = 1 + ((scores >= best) & ~right).sum(axis=1)
    return ranks


def recall(ranks: NDArray[np.integer], ks: Sequence[int]) -> dict[int, float]:
    """Share of ranks that are at most k, for each k."""
    return {k: float((ranks <= k).mean()) for k in ks}


def word_order(
    image_nd: NDArray[np.floating], text_nd: NDArray[np.floating], wrong: Mapping[str, NDArray[np.floating]]
) -> dict[str, float]:
    """How often a picture is nearer to its caption than to a minimally wrong one, by kind of wrong (chance: 0.5).

    This is the score of ARO (Yuksekgonul et al. 2023) and SugarCrepe (Hsieh et al. 2023); a tie counts as wrong.

    Args:
        image_nd: Unit vectors of pictures, shape (n, d).
        text_nd: Of their captions, shape (n, d).
        wrong: Kind to the vectors of the wrong captions, shape (n, d) each.

    Returns:
        The accuracy of each kind, and under "mean" their plain mean.

    Raises:
        ValueError: if shapes differ, something is empty, or a vector is not finite.
    """
    images, texts = _checked(image_nd), _checked(text_nd)
    if images.shape != texts.shape or not wrong:
        raise ValueError("pictures, captions and at least one kind of wrong captions of one shape are needed")
    own = (images * texts).sum(axis=1)
    accuracy = {}
    for kind, vectors in wrong.items():
        other = _checked(vectors)
        if other.shape != images.shape:
            raise ValueError(f"the wrong captions {kind!r} have shape {other.shape} instead of {images.shape}")
        accuracy[kind] = float((own > (images * other).sum(axis=1)).mean())
    return {**accuracy, "mean": float(np.mean(list(accuracy.values())))}


def _checked(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    array = np.asarray(vectors, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"vectors of shape (n, d) are needed, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("some vectors are not finite")
    return array
