"""What held-out pairs of pictures and captions say of a dual encoder: retrieval, and how its space is filled."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.training.collapse.measures import alignment, effective_rank, uniformity
from twinlens.training.evaluate import recall, retrieval_ranks

# Uniformity looks at every pair of vectors.
_MOST_FOR_UNIFORMITY = 4096


def pair_measures(
    image_md: NDArray[np.floating],
    text_nd: NDArray[np.floating],
    image_of_text: NDArray[np.integer],
    ks: tuple[int, ...] = (1, 5, 10),
) -> dict[str, float]:
    """Named measures for curves and for choosing a checkpoint.

    Args:
        image_md: Unit vectors of m pictures, shape (m, d).
        text_nd: Unit vectors of n captions, shape (n, d).
        image_of_text: The picture that each caption belongs to, shape (n,).
        ks: Of recall@k.

    Returns:
        `text_to_image_r1`, `_r5`, `_r10` and `text_to_image_median_rank`; the same of `image_to_text`; `mean_recall`,
        the mean of the recalls of both ways; `alignment`; and `image_uniformity`, `image_rank`, `text_uniformity`,
        `text_rank`, `modality_gap` (see `space_measures`).

    Raises:
        ValueError: if shapes differ, something is empty, or a vector is not finite.
    """
    ranks = retrieval_ranks(image_md, text_nd, image_of_text)
    return {**rank_measures(*ranks, ks), **space_measures(image_md, text_nd, image_of_text)}


def rank_measures(
    text_ranks: NDArray[np.integer], image_ranks: NDArray[np.integer], ks: tuple[int, ...] = (1, 5, 10)
) -> dict[str, float]:
    """Those of `pair_measures` that the places of right answers tell (see `retrieval_ranks`).

    Args:
        text_ranks: Places of captions' own pictures, from 1.
        image_ranks: Places of pictures' best captions.
        ks: Of recall@k.
    """
    ways = {"text_to_image": text_ranks, "image_to_text": image_ranks}
    recalls = {f"{way}_r{k}": share for way, ranks in ways.items() for k, share in recall(ranks, ks).items()}
    return {
        **recalls,
        "mean_recall": float(np.mean(list(recalls.values()))),
        **{f"{way}_median_rank": float(np.median(ranks)) for way, ranks in ways.items()},
    }


def space_measures(
    image_md: NDArray[np.floating], text_nd: NDArray[np.floating], image_of_text: NDArray[np.integer]
) -> dict[str, float]:
    """Alignment of pairs, and uniformity and effective rank of either side, with the gap between the sides.

    Args:
        image_md: Unit vectors of m pictures, shape (m, d).
        text_nd: Unit vectors of n captions, shape (n, d).
        image_of_text: The picture that each caption belongs to, shape (n,).

    Returns:
        `alignment` (Wang & Isola 2020: mean squared distance of a caption and its picture), `modality_gap` (Liang et
        al. 2022: distance of the mean picture and the mean caption), and for either side what `spread_measures` says.
        What needs two rows is left out where there is one.
    """
    images, texts = torch.from_numpy(np.array(image_md)), torch.from_numpy(np.array(text_nd))
    owners = torch.from_numpy(np.array(image_of_text, dtype=np.int64))
    measures = {"modality_gap": float(torch.linalg.vector_norm(images.mean(dim=0) - texts.mean(dim=0)))}
    if len(texts) > 1:
        measures["alignment"] = float(alignment(texts, images[owners]))
    for side, vectors in (("image", image_md), ("text", text_nd)):
        measures |= {f"{side}_{name}": value for name, value in spread_measures(vectors).items()}
    return measures


def spread_measures(vector_nd: NDArray[np.floating]) -> dict[str, float]:
    """`uniformity` (Wang & Isola 2020) and `rank` (effective rank, Roy & Vetterli 2007) of vectors, shape (n, d).

    Of more than 4,096 vectors uniformity looks at so many, evenly spread. Nothing where there is but one.
    """
    if len(vector_nd) < 2:
        return {}
    vectors = torch.from_numpy(np.array(vector_nd))
    taken = np.linspace(0, len(vectors) - 1, min(len(vectors), _MOST_FOR_UNIFORMITY)).round().astype(np.int64)
    return {"uniformity": float(uniformity(vectors[torch.from_numpy(taken)])), "rank": float(effective_rank(vectors))}
