"""The agreement gate: how far a reduced tower may be from fp32."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.agreement_limits import MIN_MEAN_COSINE, MIN_WORST_COSINE

# Points of 100.
MAX_DROP = 0.5
_FIRST = 10
_CHUNK = 256


@dataclass(frozen=True)
class Vectors:
    """Unit vectors of everything that judges, from one choice of towers.

    Attributes:
        images: Of the held-out pictures, shape (m, d).
        texts: Of the held-out texts; captions first, shape (t, d).
        labelled: For each labelled set the vectors of its pictures and of its prompts.
    """

    images: NDArray[np.float32]
    texts: NDArray[np.float32]
    labelled: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...] = ()


@dataclass(frozen=True)
class Judgement:
    """How vectors compare with those of fp32.

    Attributes:
        mean_cosine: Over all held-out items of the reduced towers.
        worst_cosine: The least, the parity inputs included.
        items: How many held-out items there were.
        recall_drop: Points of recall@10 lost: of captions finding their picture, or without captions of what is nearest
            in fp32 being among the first ten: a picture's nearest picture or a text's nearest text, and where both
            towers are reduced the picture nearest to a text.
        recall_queries: How many queries that is over.
        by_captions: Which of the two.
        top1_drops: Points of zero-shot top-1 lost, by labelled set, and the pictures in it.
        overlap: Mean share of fp32's ten nearest neighbours that are kept; for information.
        problems: What breaks the gate, as short phrases.
    """

    mean_cosine: float
    worst_cosine: float
    items: int
    recall_drop: float | None = None
    recall_queries: int = 0
    by_captions: bool = False
    top1_drops: dict[str, tuple[float, int]] = field(default_factory=dict)
    overlap: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing breaks the gate."""
        return not self.problems

    @property
    def top1_drop(self) -> float | None:
        """The largest drop of all labelled sets."""
        return max((drop for drop, _ in self.top1_drops.values()), default=None)


def judge(
    exact: Vectors,
    found: Vectors,
    cosines: NDArray[np.float64],
    caption_of: NDArray[np.int64],
    labels: dict[str, NDArray[np.int64]],
) -> Judgement:
    """Holds vectors against fp32's.

    Args:
        exact: fp32's vectors.
        found: The same from the towers that are judged; of a tower that is not reduced, fp32's.
        cosines: Of each vector of the reduced towers with fp32's.
        caption_of: For each of the first texts, which picture it describes.
        labels: For each labelled set, in order, the classes of its pictures.
    """
    recall_drop: float | None = None
    overlap: float | None = None
    queries = len(caption_of)
    if queries:
        before = recall(exact.texts[:queries], exact.images, caption_of)
        recall_drop = before - recall(found.texts[:queries], found.images, caption_of)
    elif found.images is not exact.images and found.texts is not exact.texts:
        nearest = (exact.texts @ exact.images.T).argmax(axis=1)
        recall_drop, queries = 100.0 - recall(found.texts, found.images, nearest), len(nearest)
    # Of the tower that is reduced; of the pictures where both are.
    probed, probe = (exact.texts, found.texts) if found.images is exact.images else (exact.images, found.images)
    if len(probed) > _FIRST + 1:
        kept, overlap = neighbours_kept(probed, probe)
        if recall_drop is None:
            recall_drop, queries = 100.0 - kept, len(probed)
    drops: dict[str, tuple[float, int]] = {}
    for (name, classes), (pictures, prompts), (new_pictures, new_prompts) in zip(
        labels.items(), exact.labelled, found.labelled, strict=True
    ):
        drop = top1(pictures, prompts, classes) - top1(new_pictures, new_prompts, classes)
        drops[name] = (drop, len(classes))
    measured = Judgement(
        mean_cosine=float(cosines.mean()),
        worst_cosine=float(cosines.min()),
        items=len(cosines),
        recall_drop=recall_drop,
        recall_queries=queries,
        by_captions=bool(len(caption_of)),
        top1_drops=drops,
        overlap=overlap,
    )
    return _with_problems(measured)


def _with_problems(measured: Judgement) -> Judgement:
    problems = []
    if not measured.mean_cosine >= MIN_MEAN_COSINE:
        problems.append(f"mean cosine {measured.mean_cosine:.4f}, at least {MIN_MEAN_COSINE} is needed")
    if not measured.worst_cosine >= MIN_WORST_COSINE:
        problems.append(f"worst cosine {measured.worst_cosine:.4f}, at least {MIN_WORST_COSINE} is needed")
    drops = {"recall@10": measured.recall_drop, **{f"top-1 on {k}": d for k, (d, _) in measured.top1_drops.items()}}
    problems += [
        f"{what} falls by {drop:.2f} points, at most {MAX_DROP} are allowed"
        for what, drop in drops.items()
        if drop is not None and drop > MAX_DROP
    ]
    return dataclasses.replace(measured, problems=tuple(problems))


def recall(texts: NDArray[np.float32], images: NDArray[np.float32], picture_of: NDArray[np.int64]) -> float:
    """Recall@10 text to image, points of 100: a picture counts as found if fewer than ten score higher."""
    hits = 0
    for start in range(0, len(texts), _CHUNK):
        scores = texts[start : start + _CHUNK] @ images.T
        own = scores[np.arange(len(scores)), picture_of[start : start + _CHUNK]]
        hits += int(((scores > own[:, None]).sum(axis=1) < _FIRST).sum())
    return 100.0 * hits / len(texts)


def top1(pictures: NDArray[np.float32], prompts: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Zero-shot top-1 accuracy, points of 100."""
    return 100.0 * float(((pictures @ prompts.T).argmax(axis=1) == labels).mean())


def neighbours_kept(exact: NDArray[np.float32], found: NDArray[np.float32]) -> tuple[float, float]:
    """How neighbours survive.

    Returns:
        Points of 100 of items whose nearest neighbour in fp32 is among their ten nearest now; and the mean share of
        the ten nearest that are the same.
    """
    nearest, shared = 0, 0
    for start in range(0, len(exact), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(exact)))
        lists = []
        for vectors in (exact, found):
            scores = vectors[rows] @ vectors.T
            scores[np.arange(len(rows)), rows] = -2.0
            lists.append(np.argsort(-scores, axis=1, kind="stable")[:, :_FIRST])
        same = lists[0][:, :, None] == lists[1][:, None, :]
        nearest += int(same[:, 0].any(axis=1).sum())
        shared += int(same.sum())
    return 100.0 * nearest / len(exact), shared / (_FIRST * len(exact))
