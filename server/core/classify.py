"""Zero-shot labelling: pictures against the vectors of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Outcome, Picture
from twinlens.server.core.errors import Code, ItemFailure, ServiceError, invalid_argument
from twinlens.server.core.labels import DEFAULT_TEMPLATE, PLACEHOLDER, LabelCache, LabelVectors
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.scoring import probabilities

MAX_LABELS = 10_000
MAX_TEMPLATES = 256
MAX_PROMPTS = 200_000
MAX_SCORES = 1_000_000
# Cosines computed at a time, for a reply of few labels may come from a matrix of millions.
_BLOCK = 1_000_000


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


class Classifier:
    """Scores pictures against labels."""

    def __init__(self, engine: Engine, admission: Admission, labels: LabelCache, io: WorkerPool) -> None:
        self._engine = engine
        self._admission = admission
        self._labels = labels
        self._io = io

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
        if not (self._engine.has_image_tower and self._engine.has_text_tower):
            raise ServiceError(
                Code.FAILED_PRECONDITION,
                "labelling needs a model that embeds both pictures and texts; this one does not",
            )
        prompts = list(templates) or [DEFAULT_TEMPLATE]
        check_labels(labels, prompts)
        keep = min(top_k, len(labels)) if top_k else len(labels)
        if len(pictures) * keep > MAX_SCORES:
            raise invalid_argument(
                f"{len(pictures)} images with {keep} labels each are more than {MAX_SCORES} scores; "
                "send fewer images or set top_k"
            )
        with self._admission.admit(len(pictures), sum(map(len, pictures))):
            vectors = await self._labels.get(labels, prompts, call)
            outcomes = await self._engine.embed([Picture(data) for data in pictures], call)
        return await self._io.submit(call.priority, self._score, outcomes, vectors, keep, multi_label)

    def _score(
        self, outcomes: Sequence[Outcome], vectors: LabelVectors, keep: int, multi_label: bool
    ) -> list[Labelled]:
        results = [Labelled(failure=outcome.failure) for outcome in outcomes]
        good = [i for i, outcome in enumerate(outcomes) if outcome.vector is not None]
        labels, neutral_label = vectors.labels.T.astype(np.float64), vectors.neutral.astype(np.float64)
        rows = max(1, _BLOCK // len(vectors.labels))
        for block in (good[start : start + rows] for start in range(0, len(good), rows)):
            matrix = np.stack([np.asarray(outcomes[i].vector, dtype=np.float64) for i in block])
            cosines = np.clip(matrix @ labels, -1.0, 1.0)
            neutral = np.clip(matrix @ neutral_label, -1.0, 1.0)
            shares = probabilities(self._engine.manifest.scoring, cosines, multi_label=multi_label, neutral=neutral)
            # Stable, so equal cosines keep the caller's order.
            best = np.argsort(-cosines, axis=1, kind="stable")[:, :keep]
            for row, i in enumerate(block):
                kept = best[row]
                results[i] = Labelled(kept, cosines[row, kept], shares[row, kept], vectors.truncated[kept])
        return results


def check_labels(labels: Sequence[str], templates: Sequence[str]) -> None:
    """Refuses labels and templates that cannot be meant.

    Raises:
        ServiceError: INVALID_ARGUMENT.
    """
    if not 1 <= len(labels) <= MAX_LABELS:
        raise invalid_argument(f"a request has 1 to {MAX_LABELS} labels, not {len(labels)}")
    if any(not label.strip() for label in labels):
        raise invalid_argument("a label is empty")
    if len(set(labels)) != len(labels):
        raise invalid_argument("two labels are the same")
    if len(templates) > MAX_TEMPLATES:
        raise invalid_argument(f"a request has at most {MAX_TEMPLATES} templates, not {len(templates)}")
    if len(labels) * len(templates) > MAX_PROMPTS:
        raise invalid_argument(f"labels times templates are at most {MAX_PROMPTS}, not {len(labels) * len(templates)}")
    for template in templates:
        if PLACEHOLDER not in template:
            raise invalid_argument(f'template {template[:60]!r} has no "{{}}" for the label')
