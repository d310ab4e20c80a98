"""Labelling by text alone (zero-shot): pictures against the vectors of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinlens.index.item import Modality
from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Outcome, any_fetched, size_of
from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.core.label_scorer import LabelRoom, LabelScorer, Scores
from twinlens.server.core.labels import (
    DEFAULT_TEMPLATE,
    PLACEHOLDER,
    KeptVectors,
    LabelCache,
    LabelVectors,
    check_length,
)
from twinlens.server.core.none_of_these import NoneOfThese
from twinlens.server.core.scoring import cosines_with, probabilities
from twinlens.server.core.towers import no_tower

MAX_LABELS = 10_000
MAX_TEMPLATES = 256
MAX_PROMPTS = 200_000


@dataclass(frozen=True, slots=True)
class Words:
    """Labels in words, and how to ask for them.

    Attributes:
        labels: To choose from.
        templates: Prompts around them; none means the default one.
        multi_label: See `probabilities`.
        none: When no label fits.
        kept: Where the vectors of these labels are kept; None: in memory alone.
    """

    labels: Sequence[str]
    templates: Sequence[str] = ()
    multi_label: bool = False
    none: NoneOfThese = field(default_factory=NoneOfThese)
    kept: KeptVectors | None = None

    @property
    def prompts(self) -> Sequence[str]:
        """The templates, the default in place of none."""
        return self.templates or (DEFAULT_TEMPLATE,)


class Classifier:
    """Scores pictures against labels in words."""

    def __init__(self, engine: Engine, admission: Admission, labels: LabelCache, *, max_reply_bytes: int) -> None:
        self._engine = engine
        self._admission = admission
        self._labels = labels
        self._max_reply_bytes = max_reply_bytes

    async def classify(
        self, pictures: Sequence[Input], words: Words, *, top_k: int, call: Call
    ) -> tuple[list[Outcome], LabelScorer]:
        """Embeds pictures, each on its own (a bad one fails alone), and what to score them by.

        Args:
            pictures: At least one.
            words: The labels.
            top_k: How many labels a picture; 0 means all.
            call: The call this is for.

        Raises:
            ServiceError: as `scorer`, and RESOURCE_EXHAUSTED when the server is full.
        """
        room = self._room(words, top_k)
        room.check(len(pictures))
        size_bytes, fetches = sum(map(size_of, pictures)), any_fetched(pictures) or self._waits(words)
        with self._admission.admit(len(pictures), size_bytes, pictures=True, fetches=fetches, call=call):
            scorer = await self._scorer(words, room, call, held=len(pictures))
            outcomes = await self._engine.embed(pictures, call)
        return outcomes, scorer

    async def scorer(self, words: Words, *, top_k: int, call: Call) -> LabelScorer:
        """What to score pictures by. Only labels to embed are admitted: whoever asks bounds how often.

        Args:
            words: The labels.
            top_k: How many labels a picture; 0 means all.
            call: The call this is for.

        Raises:
            ServiceError: INVALID_ARGUMENT for labels, templates or thresholds that cannot be meant, FAILED_PRECONDITION
                for a model without one of the towers, RESOURCE_EXHAUSTED when the server is full.
        """
        return await self._scorer(words, self._room(words, top_k), call, held=0)

    async def embed_words(self, words: Words, call: Call) -> dict[str, LabelVectors]:
        """The vectors of labels and background prompts, by their digests.

        Raises:
            ServiceError: as `scorer`.
        """
        self._check(words)
        vectors = {self._labels.key(words.labels, words.prompts): await self._label_vectors(words, call, held=0)}
        if words.none.background:
            background = await self._background_vectors(words, call, held=0)
            vectors[self._labels.key(words.none.background, (PLACEHOLDER,))] = background
        return vectors

    def _room(self, words: Words, top_k: int) -> LabelRoom:
        check_image_tower(self._engine)
        self._check(words)
        return LabelRoom(words.labels, top_k, self._max_reply_bytes)

    def _check(self, words: Words) -> None:
        if not self._engine.has_text_tower:
            so, instead = "labels in words mean nothing to it", "give pictures that show each label (examples)"
            raise ServiceError(Code.FAILED_PRECONDITION, no_tower(self._engine.manifest, Modality.TEXT, so, instead))
        check_labels(words.labels, words.prompts)
        words.none.check()

    def _waits(self, words: Words) -> bool:
        """Whether the scorer has to wait for bulk work: so many prompts to embed that pictures overtake them."""
        return any(
            self._engine.is_bulk(len(labels) * len(templates)) and not self._labels.has(labels, templates)
            for labels, templates in ((words.labels, words.prompts), (words.none.background, (PLACEHOLDER,)))
        )

    async def _scorer(self, words: Words, room: LabelRoom, call: Call, *, held: int) -> LabelScorer:
        vectors = await self._label_vectors(words, call, held=held)
        background = (await self._background_vectors(words, call, held=held)).labels if words.none.background else None
        return LabelScorer(
            labels=words.labels,
            room=room,
            score_block=_Block(self._engine, vectors, background, words.multi_label),
            width=len(words.labels) + len(words.none.background),
            truncated=vectors.truncated,
            none=words.none,
        )

    async def _label_vectors(self, words: Words, call: Call, *, held: int) -> LabelVectors:
        return await self._labels.get(words.labels, words.prompts, call, kept=words.kept, held=held)

    async def _background_vectors(self, words: Words, call: Call, *, held: int) -> LabelVectors:
        what, prompts = "background prompt", words.none.background
        return await self._labels.get(prompts, (PLACEHOLDER,), call, what=what, kept=words.kept, held=held)


class _Block:
    """Scores blocks of pictures by the checkpoint's own rule, labels and background prompts together."""

    def __init__(
        self, engine: Engine, vectors: LabelVectors, background: NDArray[np.float32] | None, multi_label: bool
    ) -> None:
        self._rule = engine.manifest.scoring
        self._vectors = vectors
        self._background = background
        self._multi_label = multi_label

    def __call__(self, matrix: NDArray[np.float64]) -> Scores:
        count = len(self._vectors.labels)
        together = cosines_with(matrix, self._vectors.labels)
        if self._background is not None:
            together = np.concatenate([together, cosines_with(matrix, self._background)], axis=1)
        neutral = cosines_with(matrix, self._vectors.neutral)
        shares = probabilities(self._rule, together, multi_label=self._multi_label, neutral=neutral)
        cosines = together[:, :count]
        compete = self._background is not None and self._rule.rule == "softmax" and not self._multi_label
        return Scores(
            cosines,
            shares[:, :count],
            # Stable, so equal cosines keep the caller's order.
            np.argsort(-cosines, axis=1, kind="stable"),
            background_cosines=None if self._background is None else together[:, count:].max(axis=1),
            background_probabilities=shares[:, count:].sum(axis=1) if compete else None,
        )


def check_image_tower(engine: Engine) -> None:
    """Refuses a model that cannot label, whatever by.

    Raises:
        ServiceError: FAILED_PRECONDITION, saying what to do.
    """
    if not engine.has_image_tower:
        so, instead = "it cannot label pictures", "embed and search texts with it"
        raise ServiceError(Code.FAILED_PRECONDITION, no_tower(engine.manifest, Modality.IMAGE, so, instead))


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
