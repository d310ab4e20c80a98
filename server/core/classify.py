"""Labelling by text alone (zero-shot): pictures against the vectors of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.item import Modality
from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Outcome, Picture
from twinlens.server.core.errors import Code, ItemFailure, ServiceError, invalid_argument
from twinlens.server.core.labels import DEFAULT_TEMPLATE, PLACEHOLDER, LabelCache, LabelVectors, check_length
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.scoring import probabilities
from twinlens.server.core.towers import no_tower

MAX_LABELS = 10_000
MAX_TEMPLATES = 256
MAX_PROMPTS = 200_000
MAX_SCORES = 1_000_000
# Cosines computed at a time, for a reply of few labels may come from a matrix of millions.
_BLOCK = 1_000_000
# What a score takes in a reply beside its label: two floats and a flag with their tags, and two lengths.
_SCORE_BYTES = 18


@dataclass(frozen=True, slots=True)
class Labelled:
    """What became of one picture.

    Attributes:
        labels: Positions of labels in the request, best first, shape (k,); None where the picture failed.
        cosines: Their cosines, shape (k,).
        probabilities: Their probabilities, shape (k,).
        truncated: Which of them have a prompt that was cut, shape (k,).
        failure: Why the picture failed.
    """

    labels: NDArray[np.int64] | None = None
    cosines: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None
    truncated: NDArray[np.bool_] | None = None
    failure: ItemFailure | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a block of pictures.

    Attributes:
        cosines: Shape (pictures, labels).
        probabilities: Shape (pictures, labels).
        order: Positions of labels, best first, shape (pictures, labels).
    """

    cosines: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    order: NDArray[np.int64]


class Classifier:
    """Scores pictures against labels in words."""

    def __init__(
        self, engine: Engine, admission: Admission, labels: LabelCache, io: WorkerPool, *, max_reply_bytes: int
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._labels = labels
        self._io = io
        self._max_reply_bytes = max_reply_bytes

    async def classify(
        self,
        pictures: Sequence[bytes],
        labels: Sequence[str],
        templates: Sequence[str],
        *,
        top_k: int,
        multi_label: bool,
        call: Call,
    ) -> list[Labelled]:
        """Labels pictures, each on its own: a bad one fails alone.

        Args:
            pictures: Encoded pictures.
            labels: See `check_labels`.
            templates: Prompts; none means the default one.
            top_k: How many labels a picture; 0 means all.
            multi_label: See `probabilities`.
            call: The call this is for.

        Raises:
            ServiceError: INVALID_ARGUMENT for bad labels or templates, FAILED_PRECONDITION for a model without one of
                the towers, RESOURCE_EXHAUSTED when the server is full.
        """
        check_image_tower(self._engine)
        if not self._engine.has_text_tower:
            so, instead = "labels in words mean nothing to it", "give pictures that show each label (examples)"
            raise ServiceError(Code.FAILED_PRECONDITION, no_tower(self._engine.manifest, Modality.TEXT, so, instead))
        prompts = list(templates) or [DEFAULT_TEMPLATE]
        check_labels(labels, prompts)
        keep = labels_kept(len(pictures), labels, top_k, self._max_reply_bytes)
        with self._admission.admit(len(pictures), sum(map(len, pictures))):
            vectors = await self._labels.get(labels, prompts, call)
            outcomes = await self._engine.embed([Picture(data) for data in pictures], call)
        return await self._io.submit(call.priority, self._score, outcomes, vectors, keep, multi_label)

    def _score(
        self, outcomes: Sequence[Outcome], vectors: LabelVectors, keep: int, multi_label: bool
    ) -> list[Labelled]:
        labels, neutral_label = vectors.labels.T.astype(np.float64), vectors.neutral.astype(np.float64)

        def score(matrix: NDArray[np.float64]) -> Scores:
            cosines = np.clip(matrix @ labels, -1.0, 1.0)
            neutral = np.clip(matrix @ neutral_label, -1.0, 1.0)
            shares = probabilities(self._engine.manifest.scoring, cosines, multi_label=multi_label, neutral=neutral)
            # Stable, so equal cosines keep the caller's order.
            return Scores(cosines, shares, np.argsort(-cosines, axis=1, kind="stable"))

        return score_in_blocks(outcomes, score, len(vectors.labels), keep, vectors.truncated)


def score_in_blocks(
    outcomes: Sequence[Outcome],
    score: Callable[[NDArray[np.float64]], Scores],
    width: int,
    keep: int,
    truncated: NDArray[np.bool_],
) -> list[Labelled]:
    """Scores the pictures that could be embedded, as many at a time as keep the matrices small.

    Args:
        outcomes: What became of the pictures.
        score: Scores unit vectors, shape (pictures, d).
        width: How many cosines a picture takes.
        keep: How many labels a picture, best first.
        truncated: Which labels have a prompt that was cut, shape (labels,).
    """
    results = [Labelled(failure=outcome.failure) for outcome in outcomes]
    good = [i for i, outcome in enumerate(outcomes) if outcome.vector is not None]
    rows = max(1, _BLOCK // width)
    for block in (good[start : start + rows] for start in range(0, len(good), rows)):
        scores = score(np.stack([np.asarray(outcomes[i].vector, dtype=np.float64) for i in block]))
        for row, i in enumerate(block):
            kept = scores.order[row, :keep]
            results[i] = Labelled(kept, scores.cosines[row, kept], scores.probabilities[row, kept], truncated[kept])
    return results


def check_image_tower(engine: Engine) -> None:
    """Refuses a model that cannot label, whatever by.

    Raises:
        ServiceError: FAILED_PRECONDITION, saying what to do.
    """
    if not engine.has_image_tower:
        so, instead = "it cannot label pictures", "embed and search texts with it"
        raise ServiceError(Code.FAILED_PRECONDITION, no_tower(engine.manifest, Modality.IMAGE, so, instead))


def labels_kept(pictures: int, labels: Sequence[str], top_k: int, max_reply_bytes: int) -> int:
    """How many labels a picture gets; asked before anything is scored.

    Args:
        pictures: How many there are.
        labels: To choose from.
        top_k: How many of them a picture gets; 0 means all.
        max_reply_bytes: What can be sent. Every picture may get the longest labels.

    Raises:
        ServiceError: INVALID_ARGUMENT where that is more than a reply can hold.
    """
    keep = min(top_k, len(labels)) if top_k else len(labels)
    if pictures * keep > MAX_SCORES:
        raise invalid_argument(
            f"{pictures} images with {keep} labels each are more than {MAX_SCORES} scores; "
            "send fewer images or set top_k"
        )
    longest = sorted((len(label.encode()) for label in labels), reverse=True)[:keep]
    size = pictures * (sum(longest) + keep * _SCORE_BYTES)
    if size > max_reply_bytes:
        raise invalid_argument(
            f"{pictures} images with {keep} labels each may make a reply of {size} bytes, at most {max_reply_bytes} "
            "can be sent; send fewer images, set top_k or shorten the labels"
        )
    return keep


def check_labels(labels: Sequence[str], templates: Sequence[str]) -> None:
    """Refuses labels, and templates for them, that cannot be meant.

    Raises:
        ServiceError: INVALID_ARGUMENT.
    """
    if not 1 <= len(labels) <= MAX_LABELS:
        raise invalid_argument(f"a request has 1 to {MAX_LABELS} labels, not {len(labels)}")
    if any(not label.strip() for label in labels):
        raise invalid_argument("a label is empty")
    if len(set(labels)) != len(labels):
        raise invalid_argument("two labels are the same")
    for label in labels:
        check_length(label, "label")
    check_templates(templates)
    if len(labels) * len(templates) > MAX_PROMPTS:
        raise invalid_argument(f"labels times templates are at most {MAX_PROMPTS}, not {len(labels) * len(templates)}")


def check_templates(templates: Sequence[str]) -> None:
    """Refuses templates that cannot be meant, whatever the labels.

    Raises:
        ServiceError: INVALID_ARGUMENT.
    """
    if len(templates) > MAX_TEMPLATES:
        raise invalid_argument(f"a request has at most {MAX_TEMPLATES} templates, not {len(templates)}")
    for template in templates:
        if PLACEHOLDER not in template:
            raise invalid_argument(f'template {template[:60]!r} has no "{{}}" for the label')
        check_length(template, "template")
