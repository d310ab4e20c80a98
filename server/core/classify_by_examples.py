"""Labelling by pictures whose labels are known: class prototypes, or the votes of the nearest examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinlens.index.item import Modality
from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.classify import check_image_tower, check_labels, check_templates
from twinlens.server.core.engine import Engine, Input, Outcome, any_fetched, size_of
from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.core.example_scoring import (
    ExampleRule,
    ExampleScoring,
    knn_probabilities,
    prototype_probabilities,
)
from twinlens.server.core.examples import ExampleCache, ExampleSource, ExampleVectors
from twinlens.server.core.label_scorer import LabelRoom, LabelScorer, Scores
from twinlens.server.core.labels import DEFAULT_TEMPLATE, LabelCache, directions
from twinlens.server.core.none_of_these import NoneOfThese
from twinlens.server.core.scoring import cosines_with
from twinlens.server.core.towers import no_tower


@dataclass(frozen=True, slots=True)
class Shown:
    """Examples, and how to score by them.

    Attributes:
        source: The examples.
        scoring: How to score.
        templates: Prompts around a label, for a text weight above 0; none means the default one.
        none: When no label fits; of rule PROTOTYPE, and without background prompts.
    """

    source: ExampleSource
    scoring: ExampleScoring
    templates: Sequence[str] = ()
    none: NoneOfThese = field(default_factory=NoneOfThese)

    def check(self) -> None:
        """Refuses what cannot be meant, whatever the examples are.

        Raises:
            ServiceError: INVALID_ARGUMENT.
        """
        self.scoring.check()
        if self.templates and not self.scoring.text_weight:
            raise invalid_argument("templates are of use beside examples only with a text_weight above 0")
        if self.none.background:
            raise invalid_argument(
                "background_prompts are for labels in words: a text is further from a picture than other pictures are; "
                "show the background as a label of its own, or set min_cosine"
            )
        if self.none != NoneOfThese() and self.scoring.rule is ExampleRule.KNN:
            raise invalid_argument(
                "none_of_these is for rule PROTOTYPE; votes are counted among neighbours however far"
            )
        self.none.check()
        check_templates(self.templates)


class ExampleClassifier:
    """Scores pictures against examples."""

    def __init__(
        self,
        engine: Engine,
        admission: Admission,
        examples: ExampleCache,
        labels: LabelCache,
        *,
        max_reply_bytes: int,
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._examples = examples
        self._labels = labels
        self._max_reply_bytes = max_reply_bytes

    async def classify(
        self, pictures: Sequence[Input], shown: Shown, *, top_k: int, call: Call
    ) -> tuple[list[Outcome], LabelScorer, ExampleVectors]:
        """Embeds pictures, each on its own (a bad one fails alone), and what to score them by.

        Args:
            pictures: At least one.
            shown: The examples.
            top_k: How many labels a picture; 0 means all.
            call: The call this is for.

        Returns:
            What became of each picture, what to score them by, and what the examples became.

        Raises:
            ServiceError: as `scorer`, and RESOURCE_EXHAUSTED when the server is full.
        """
        self._check(shown)
        size_bytes = sum(map(size_of, pictures)) + shown.source.size_bytes
        items = len(pictures) + shown.source.pictures
        fetches = any_fetched(pictures) or (
            shown.source.collection is not None and not self._examples.has(shown.source, shown.scoring.rule)
        )
        with self._admission.admit(items, size_bytes, pictures=True, fetches=fetches, call=call):
            scorer, examples = await self._scorer(shown, top_k, call, pictures=len(pictures), held=items)
            outcomes = await self._engine.embed(pictures, call)
        return outcomes, scorer, examples

    async def scorer(self, shown: Shown, *, top_k: int, call: Call) -> tuple[LabelScorer, ExampleVectors]:
        """What to score pictures by, and what the examples became.

        Only labels to embed are admitted: whoever asks bounds how often.

        Args:
            shown: The examples.
            top_k: How many labels a picture; 0 means all.
            call: The call this is for.

        Raises:
            ServiceError: INVALID_ARGUMENT for examples or options that cannot be meant, FAILED_PRECONDITION for a model
                without the towers, RESOURCE_EXHAUSTED when the server is full.
        """
        self._check(shown)
        return await self._scorer(shown, top_k, call, pictures=0, held=0)

    def _check(self, shown: Shown) -> None:
        shown.check()
        check_image_tower(self._engine)
        if shown.scoring.text_weight and not self._engine.has_text_tower:
            so, instead = "there are no words for a text_weight to mix in", "leave it at 0"
            raise ServiceError(Code.FAILED_PRECONDITION, no_tower(self._engine.manifest, Modality.TEXT, so, instead))

    async def _scorer(
        self, shown: Shown, top_k: int, call: Call, *, pictures: int, held: int
    ) -> tuple[LabelScorer, ExampleVectors]:
        examples = await self._examples.get(shown.source, shown.scoring.rule, call)
        room = LabelRoom(examples.labels, top_k, self._max_reply_bytes)
        room.check(pictures)
        targets, truncated = await self._targets(examples, shown, call, held)
        rule: Callable[[NDArray[np.float64]], Scores]
        if shown.scoring.rule is ExampleRule.PROTOTYPE:
            rule = _Prototypes(targets, shown.scoring)
        else:
            rule = _Neighbours(targets, examples.starts, shown.scoring)
        scorer = LabelScorer(
            labels=examples.labels,
            room=room,
            score_block=rule,
            width=len(targets),
            truncated=truncated,
            none=shown.none,
        )
        return scorer, examples

    async def _targets(
        self, examples: ExampleVectors, shown: Shown, call: Call, held: int
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The vectors to compare with, and which labels have a prompt that was cut."""
        weight = shown.scoring.text_weight
        if not weight:
            return examples.targets, np.zeros(len(examples.labels), dtype=np.bool_)
        prompts = shown.templates or (DEFAULT_TEMPLATE,)
        check_labels(examples.labels, prompts)
        texts = await self._labels.get(examples.labels, prompts, call, held=held)
        mixed = (1.0 - weight) * examples.targets.astype(np.float64)
        mixed += weight * texts.labels.astype(np.float64)
        return directions(mixed, examples.labels, "text and examples"), texts.truncated


class _Prototypes:
    """Compares blocks of pictures with one vector a label."""

    def __init__(self, targets: NDArray[np.float32], scoring: ExampleScoring) -> None:
        self._targets = targets
        self._scoring = scoring

    def __call__(self, matrix: NDArray[np.float64]) -> Scores:
        cosines = cosines_with(matrix, self._targets)
        shares = prototype_probabilities(cosines, self._scoring.temperature)
        return Scores(cosines, shares, np.argsort(-cosines, axis=1, kind="stable"))


class _Neighbours:
    """Lets the nearest examples vote on blocks of pictures."""

    def __init__(self, targets: NDArray[np.float32], starts: NDArray[np.intp], scoring: ExampleScoring) -> None:
        self._targets = targets
        self._starts = starts
        self._scoring = scoring

    def __call__(self, matrix: NDArray[np.float64]) -> Scores:
        # In float32: a copy of all examples in float64 would take longer than the product.
        every = np.clip((matrix.astype(np.float32) @ self._targets.T).astype(np.float64), -1.0, 1.0)
        shares = knn_probabilities(every, self._starts, self._scoring.k, self._scoring.temperature)
        cosines = np.maximum.reduceat(every, self._starts, axis=1)
        return Scores(cosines, shares, np.lexsort((-cosines, -shares), axis=1))
