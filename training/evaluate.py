"""Retrieval and word-order measures over embeddings. Ties always count against the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Scores computed at a time: 64 MB of them, however many pictures and captions there are.
SCORES_AT_A_TIME = 8_000_000
# Equal vectors score the same but for rounding: a matrix product adds the same terms in different orders at its edges.
# In float64 that is 1e-15; vectors that come as float32 differ by far more wherever they differ at all.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Retrieval:
    """Recall@k by k and median rank, both ways.

    Attributes:
        text_to_image: Share of captions whose own picture is among the k nearest pictures.
        image_to_text: Share of pictures with one of their own captions among the k nearest captions.
        text_to_image_median: Median place, from 1, of a caption's own picture.
        image_to_text_median: Median place of the nearest of a picture's own captions.
    """

    text_to_image: dict[int, float]
    image_to_text: dict[int, float]
    text_to_image_median: float
    image_to_text_median: float


def retrieval(
    image_md: NDArray[np.floating],
    text_nd: NDArray[np.floating],
    image_of_text: NDArray[np.integer],
    ks: Sequence[int] = (1, 5, 10),
) -> Retrieval:
    """Recall@k and median rank with any number of captions a picture, as papers on CLIP count them.

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
    if not ks or min(ks) < 1:
        raise ValueError("every k must be at least 1")
    text_ranks, image_ranks = retrieval_ranks(image_md, text_nd, image_of_text)
    medians = float(np.median(text_ranks)), float(np.median(image_ranks))
    return Retrieval(recall(text_ranks, ks), recall(image_ranks, ks), *medians)


def retrieval_ranks(
    image_md: NDArray[np.floating], text_nd: NDArray[np.floating], image_of_text: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places, from 1, of each caption's own picture, and of the best own caption of each picture that has one.

    Args:
        image_md: Unit vectors of m pictures, shape (m, d).
        text_nd: Unit vectors of n captions, shape (n, d).
        image_of_text: The picture that each caption belongs to, shape (n,).

    Raises:
        ValueError: if shapes differ, something is empty, or a vector is not finite.
    """
    images, texts = finite_vectors(image_md), finite_vectors(text_nd)
    owners = np.asarray(image_of_text)
    if owners.shape != (len(texts),) or owners.min() < 0 or owners.max() >= len(images):
        raise ValueError("image_of_text must name a row of image_md for each row of text_nd")
    captioned = np.unique(owners)
    return (
        _ranks(texts, owners, images, np.arange(len(images))),
        _ranks(images[captioned], captioned, texts, owners),
    )


def _ranks(
    query_nd: NDArray[np.float64],
    query_owner: NDArray[np.integer],
    item_md: NDArray[np.float64],
    item_owner: NDArray[np.integer],
) -> NDArray[np.int64]:
    """For each query the place of its best item of the same owner."""
    rows = max(1, SCORES_AT_A_TIME // len(item_md))
    parts = []
    for start in range(0, len(query_nd), rows):
        part = slice(start, start + rows)
        parts.append(ranks_of_best(query_nd[part] @ item_md.T, query_owner[part, None] == item_owner[None, :]))
    return np.concatenate(parts)


def ranks_of_best(scores: NDArray[np.floating], right: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each row, the place (from 1) of its best right column among the wrong ones; on a tie the wrong is first.

    Args:
        scores: Of unit vectors, float64, shape (n, m), none of them NaN. What differs by rounding alone is a tie.
        right: Which columns are right for a row, shape (n, m); at least one each.
    """
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    ranks: NDArray[np.int64] = 1 + ((scores >= best - _ROUNDING) & ~right).sum(axis=1)
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
    images, texts = finite_vectors(image_nd), finite_vectors(text_nd)
    if images.shape != texts.shape or not wrong:
        raise ValueError("pictures, captions and at least one kind of wrong captions of one shape are needed")
    accuracy = {}
    for kind, vectors in wrong.items():
        other = finite_vectors(vectors)
        if other.shape != images.shape:
            raise ValueError(f"the wrong captions {kind!r} have shape {other.shape} instead of {images.shape}")
        accuracy[kind] = float(nearer(images, texts, other).mean())
    return {**accuracy, "mean": float(np.mean(list(accuracy.values())))}


def nearer(
    anchor_nd: NDArray[np.floating], right_nd: NDArray[np.floating], wrong_nd: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Which anchors are nearer to the right one than to the wrong one; a tie counts as wrong.

    Args:
        anchor_nd: Unit vectors, shape (n, d).
        right_nd: Of what belongs to each, shape (n, d).
        wrong_nd: Of what does not, shape (n, d).

    Raises:
        ValueError: if shapes differ, something is empty, or a vector is not finite.
    """
    anchor, right, wrong = finite_vectors(anchor_nd), finite_vectors(right_nd), finite_vectors(wrong_nd)
    if not anchor.shape == right.shape == wrong.shape:
        raise ValueError(f"vectors of one shape are needed, got {anchor.shape}, {right.shape} and {wrong.shape}")
    nearer_n: NDArray[np.bool_] = (anchor * right).sum(axis=1) > (anchor * wrong).sum(axis=1)
    return nearer_n


def finite_vectors(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Vectors in float64, shape (n, d).

    Raises:
        ValueError: if the shape is another, something is empty, or a vector is not finite.
    """
    array = np.asarray(vectors, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"vectors of shape (n, d) are needed, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("some vectors are not finite")
    return array
