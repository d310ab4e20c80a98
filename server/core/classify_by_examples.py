"""Labelling by pictures whose labels are known: class prototypes, or the votes of the nearest examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.index.item import Modality
from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.classify import (
    Labelled,
    Scores,
    check_image_tower,
    check_labels,
    check_templates,
    labels_kept,
    score_in_blocks,
)
from twinlens.server.core.engine import Engine, Outcome, Picture
from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.core.example_scoring import (
    ExampleRule,
    ExampleScoring,
    knn_probabilities,
    prototype_probabilities,
)
from twinlens.server.core.examples import ExampleCache, ExampleSource, ExampleVectors
from twinlens.server.core.labels import DEFAULT_TEMPLATE, LabelCache, directions
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.towers import no_tower


class ExampleClassifier:
    """Scores pictures against examples."""

    def __init__(
        self,
        engine: Engine,
        admission: Admission,
        examples: ExampleCache,
        labels: LabelCache,
        io: WorkerPool,
        *,
        max_reply_bytes: int,
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._examples = examples
        self._labels = labels
        self._io = io
        self._max_reply_bytes = max_reply_bytes

    async def classify(
        self,
        pictures: Sequence[bytes],
        source: ExampleSource,
        scoring: ExampleScoring,
        *,
        templates: Sequence[str],
        top_k: int,
        call: Call,
    ) -> tuple[list[Labelled], ExampleVectors]:
        """Labels pictures, each on its own: a bad one fails alone.

        Args:
            pictures: Encoded pictures.
            source: The examples.
            scoring: How to score.
            templates: Prompts around a label, for a text weight above 0; none means the default one.
            top_k: How many labels a picture; 0 means all.
            call: The call this is for.

        Returns:
            What became of each picture, and what the examples became: the labels are positions in those of the latter.

        Raises:
            ServiceError: INVALID_ARGUMENT for examples or options that cannot be meant, FAILED_PRECONDITION for a model
                without the towers, RESOURCE_EXHAUSTED when the server is full.
        """
        scoring.check()
        if templates and not scoring.text_weight:
            raise invalid_argument("templates are of use beside examples only with a text_weight above 0")
        check_image_tower(self._engine)
        if scoring.text_weight and not self._engine.has_text_tower:
            so, instead = "there are no words for a text_weight to mix in", "leave it at 0"
            raise ServiceError(Code.FAILED_PRECONDITION, no_tower(self._engine.manifest, Modality.TEXT, so, instead))
        prompts = list(templates) or [DEFAULT_TEMPLATE]
        check_templates(prompts)
        size_bytes = sum(map(len, pictures)) + source.size_bytes
        with self._admission.admit(len(pictures) + source.pictures, size_bytes):
            examples = await self._examples.get(source, scoring.rule, call)
            keep = labels_kept(len(pictures), examples.labels, top_k, self._max_reply_bytes)
            targets, truncated = await self._targets(examples, scoring, prompts, call)
            outcomes = await self._engine.embed([Picture(data) for data in pictures], call)
        labelled = await self._io.submit(
            call.priority, _score, outcomes, targets, examples.starts, scoring, keep, truncated
        )
        return labelled, examples

    async def _targets(
        self, examples: ExampleVectors, scoring: ExampleScoring, prompts: Sequence[str], call: Call
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The vectors to compare with, and which labels have a prompt that was cut."""
        if not scoring.text_weight:
            return examples.targets, np.zeros(len(examples.labels), dtype=np.bool_)
        check_labels(examples.labels, prompts)
        texts = await self._labels.get(examples.labels, prompts, call)
        mixed = (1.0 - scoring.text_weight) * examples.targets.astype(np.float64)
        mixed += scoring.text_weight * texts.labels.astype(np.float64)
        return directions(mixed, examples.labels, "text and examples"), texts.truncated


def _score(
    outcomes: Sequence[Outcome],
    targets: NDArray[np.float32],
    starts: NDArray[np.intp],
    scoring: ExampleScoring,
    keep: int,
    truncated: NDArray[np.bool_],
) -> list[Labelled]:
    if scoring.rule is ExampleRule.PROTOTYPE:
        prototypes = targets.T.astype(np.float64)

        def score(matrix: NDArray[np.float64]) -> Scores:
            cosines = np.clip(matrix @ prototypes, -1.0, 1.0)
            shares = prototype_probabilities(cosines, scoring.temperature)
            return Scores(cosines, shares, np.argsort(-cosines, axis=1, kind="stable"))
    else:

        def score(matrix: NDArray[np.float64]) -> Scores:
            # In float32: a copy of all examples in float64 would take longer than the product.
            every = np.clip((matrix.astype(np.float32) @ targets.T).astype(np.float64), -1.0, 1.0)
            shares = knn_probabilities(every, starts, scoring.k, scoring.temperature)
            cosines = np.maximum.reduceat(every, starts, axis=1)
            return Scores(cosines, shares, np.lexsort((-cosines, -shares), axis=1))

    return score_in_blocks(outcomes, score, len(targets), keep, truncated)
