"""Zero-shot classification over embeddings: prompts become class vectors, pictures go to the nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.training.evaluate import SCORES_AT_A_TIME, finite_vectors, ranks_of_best
from twinlens.training.evaluation.confusions import Confusions

# Below this length the mean of unit vectors is rounding, not a direction.
_CANCELLED = 1e-5


@dataclass(frozen=True)
class ZeroShot:
    """How well pictures find their class among all classes.

    Attributes:
        top_1: Share of pictures whose own class is the nearest.
        top_5: Share whose own class is among the five nearest; None where there are no more than five.
        per_class: Share of each class's pictures that went to it (recall), shape (c,); NaN for one without any.
        mean_per_class: Mean of `per_class`: classes count the same, whatever their number of pictures.
        confusions: Which class each picture went to.
    """

    top_1: float
    top_5: float | None
    per_class: NDArray[np.float64]
    mean_per_class: float
    confusions: Confusions


def class_vectors(prompt_ctd: NDArray[np.floating]) -> NDArray[np.float64]:
    """One vector a class from several prompts: normalise each, average, normalise (Radford et al. 2021, §3.1.4).

    Args:
        prompt_ctd: Vectors of t prompts of each of c classes, shape (c, t, d), of any norm but 0.

    Returns:
        Unit vectors, shape (c, d).

    Raises:
        ValueError: if the shape is another, a vector is zero or not finite, or the prompts of a class cancel out.
    """
    prompts = np.asarray(prompt_ctd)
    if prompts.ndim != 3 or 0 in prompts.shape:
        raise ValueError(f"vectors of shape (classes, prompts, d) are needed, got {prompts.shape}")
    classes = max(1, SCORES_AT_A_TIME // (prompts.shape[1] * prompts.shape[2]))
    parts = [prompts[start : start + classes] for start in range(0, len(prompts), classes)]
    return np.concatenate([_class_vectors(part.astype(np.float64)) for part in parts])


def _class_vectors(prompt_ctd: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(prompt_ctd, axis=2, keepdims=True)
    if not np.isfinite(norms).all() or (norms == 0).any():
        raise ValueError("some vectors are zero or not finite")
    means = (prompt_ctd / norms).mean(axis=1)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    if (lengths < _CANCELLED).any():
        raise ValueError("the prompts of a class point in opposite directions and leave none")
    return np.asarray(means / lengths)


def zero_shot(image_nd: NDArray[np.floating], labels: NDArray[np.integer], class_cd: NDArray[np.floating]) -> ZeroShot:
    """Sends every picture to the class with the nearest vector. A tie counts against the own class.

    Args:
        image_nd: Unit vectors of pictures, shape (n, d).
        labels: Their classes, shape (n,), each in [0, c).
        class_cd: Unit vectors of c classes, shape (c, d).

    Raises:
        ValueError: if shapes differ, something is empty, a vector is not finite, or a label is out of range.
    """
    images, classes = finite_vectors(image_nd), finite_vectors(class_cd)
    owners = np.asarray(labels)
    if images.shape[1] != classes.shape[1]:
        raise ValueError(f"pictures {images.shape} and classes {classes.shape} must be (n, d) and (c, d)")
    if owners.shape != (len(images),) or owners.min() < 0 or owners.max() >= len(classes):
        raise ValueError(f"every picture needs a label in [0, {len(classes)})")
    rows = max(1, SCORES_AT_A_TIME // len(classes))
    parts = [slice(start, start + rows) for start in range(0, len(images), rows)]
    found = [_ranks_and_choices(images[part], owners[part], classes) for part in parts]
    ranks, chosen = (np.concatenate(each) for each in zip(*found, strict=True))
    confusions = Confusions(owners, chosen, len(classes))
    pictures = confusions.pictures()
    per_class = np.full(len(classes), np.nan)
    np.divide(confusions.right(), pictures, out=per_class, where=pictures > 0)
    return ZeroShot(
        top_1=float((ranks == 1).mean()),
        top_5=float((ranks <= 5).mean()) if len(classes) > 5 else None,
        per_class=per_class,
        mean_per_class=float(np.nanmean(per_class)),
        confusions=confusions,
    )


def _ranks_and_choices(
    image_nd: NDArray[np.float64], labels: NDArray[np.integer], class_cd: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The place of the own class of each picture, and the class that it goes to."""
    scores = image_nd @ class_cd.T
    own = labels[:, None] == np.arange(len(class_cd))[None, :]
    ranks = ranks_of_best(scores, own)
    return ranks, np.where(ranks == 1, labels, np.where(own, -np.inf, scores).argmax(axis=1))
