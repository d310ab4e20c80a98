"""Scoring pictures against labels that are ready, whatever they were made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.engine import Outcome
from twinlens.server.core.errors import ItemFailure, invalid_argument
from twinlens.server.core.none_of_these import NoneOfThese

MAX_SCORES = 1_000_000
# Cosines computed at a time, for a reply of few labels may come from a matrix of millions.
_BLOCK = 1_000_000
# What a score takes in a reply beside its label: two floats and a flag with their tags, and two lengths.
_SCORE_BYTES = 18
# What a picture's result takes beside its scores: a flag and two floats with their tags.
_RESULT_BYTES = 12


@dataclass(frozen=True, slots=True)
class Labelled:
    """What became of one picture.

    Attributes:
        labels: Positions of labels, best first, shape (k,); None where the picture failed.
        cosines: Their cosines, shape (k,).
        probabilities: Their probabilities, shape (k,).
        truncated: Which of them have a prompt that was cut, shape (k,).
        none_of_these: No label fits.
        background_cosine: That of the nearest background prompt, where there are any.
        background_probability: That of all background prompts together, where labels compete with them.
        failure: Why the picture failed.
    """

    labels: NDArray[np.int64] | None = None
    cosines: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None
    truncated: NDArray[np.bool_] | None = None
    none_of_these: bool = False
    background_cosine: float | None = None
    background_probability: float | None = None
    failure: ItemFailure | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a block of pictures.

    Attributes:
        cosines: Shape (pictures, labels).
        probabilities: Shape (pictures, labels).
        order: Positions of labels, best first, shape (pictures, labels).
        background_cosines: Of the nearest background prompt, shape (pictures,); None where there are none.
        background_probabilities: Of all background prompts together, shape (pictures,); None where labels do not
            compete with any.
    """

    cosines: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    order: NDArray[np.int64]
    background_cosines: NDArray[np.float64] | None = None
    background_probabilities: NDArray[np.float64] | None = None


class LabelRoom:
    """How many labels a picture gets, and for how many pictures a reply has room.

    Args:
        labels: To choose from.
        top_k: How many of them a picture gets; 0 means all.
        max_reply_bytes: What can be sent. Every picture may get the longest labels.

    Attributes:
        keep: How many labels a picture gets.
    """

    def __init__(self, labels: Sequence[str], top_k: int, max_reply_bytes: int) -> None:
        self.keep = min(top_k, len(labels)) if top_k else len(labels)
        self._max_reply_bytes = max_reply_bytes
        longest = sorted((len(label.encode()) for label in labels), reverse=True)[: self.keep]
        self._result_bytes = sum(longest) + self.keep * _SCORE_BYTES + _RESULT_BYTES

    def check(self, pictures: int) -> None:
        """Refuses more pictures than a reply can hold; asked before anything is embedded for them.

        Raises:
            ServiceError: INVALID_ARGUMENT.
        """
        if pictures * self.keep > MAX_SCORES:
            raise invalid_argument(
                f"{pictures} images with {self.keep} labels each are more than {MAX_SCORES} scores; "
                "send fewer images or set top_k"
            )
        size = pictures * self._result_bytes
        if size > self._max_reply_bytes:
            raise invalid_argument(
                f"{pictures} images with {self.keep} labels each may make a reply of {size} bytes, at most "
                f"{self._max_reply_bytes} can be sent; send fewer images, set top_k or shorten the labels"
            )


@dataclass(frozen=True, slots=True)
class LabelScorer:
    """Labels that are ready.

    Attributes:
        labels: To choose from.
        room: How many of them a picture gets.
        score_block: Scores unit vectors, shape (pictures, d).
        width: How many cosines a picture takes.
        truncated: Which labels have a prompt that was cut, shape (labels,).
        none: When no label fits.
    """

    labels: Sequence[str]
    room: LabelRoom
    score_block: Callable[[NDArray[np.float64]], Scores]
    width: int
    truncated: NDArray[np.bool_]
    none: NoneOfThese = field(default_factory=NoneOfThese)

    def score(self, outcomes: Sequence[Outcome]) -> list[Labelled]:
        """Scores the pictures that could be embedded, as many at a time as keep the matrices small. Takes a while.

        Args:
            outcomes: What became of the pictures.
        """
        results = [Labelled(failure=outcome.failure) for outcome in outcomes]
        good = [i for i, outcome in enumerate(outcomes) if outcome.vector is not None]
        rows = max(1, _BLOCK // self.width)
        for block in (good[start : start + rows] for start in range(0, len(good), rows)):
            matrix = np.stack([np.asarray(outcomes[i].vector, dtype=np.float64) for i in block])
            for i, labelled in zip(block, self._labelled(self.score_block(matrix)), strict=True):
                results[i] = labelled
        return results

    def _labelled(self, scores: Scores) -> list[Labelled]:
        pictures = np.arange(len(scores.order))
        best = scores.order[:, 0]
        near, share = scores.background_cosines, scores.background_probabilities
        none = self.none.holds(scores.cosines[pictures, best], scores.probabilities[pictures, best], near)
        labelled = []
        for row in pictures:
            kept = scores.order[row, : self.room.keep]
            labelled.append(
                Labelled(
                    kept,
                    scores.cosines[row, kept],
                    scores.probabilities[row, kept],
                    self.truncated[kept],
                    none_of_these=bool(none[row]),
                    background_cosine=None if near is None else float(near[row]),
                    background_probability=None if share is None else float(share[row]),
                )
            )
        return labelled
