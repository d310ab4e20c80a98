"""How many hard negatives enter a batch, how hard they are, and how both grow over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.training.sections.hard_negatives import HardNegativesConfig

_NOTHING = -1


@dataclass(frozen=True)
class HardShare:
    """How many hard negatives enter a batch for each of its pairs, drawn anew each time, and how that grows.

    Share and hardness grow evenly with the number of the batch until `grown_after`, and stay there: a curriculum from
    few and easy ones to many and hard ones.

    Attributes:
        texts_per_anchor: Mined captions that are negatives only, on top of the batch.
        images_per_anchor: Mined pictures that are negatives only, on top of the batch.
        pairs_per_anchor: Whole mined pairs that take the place of others, so the batch keeps its size: their captions
            and pictures are negatives of their anchors, and anchors themselves (as in NegCLIP, Yuksekgonul et al.
            2023).
        wrong_texts_per_anchor: Captions that the data itself calls false of the anchor's picture, on top of the batch.
        confined: What stands on top of the batch is a negative of the anchors it was drawn for, not of all.
        share_start: The part of all these numbers that enters at first; between whole numbers, that part of the anchors
            has one more.
        window: The part of an anchor's mined negatives, in the order of their scores, that is drawn from at a time.
        hardness_start: Where the window lies at first: 0 at the easiest, 1 at the hardest.
        hardness_end: Where it lies in the end.
        grown_after: Batches until share and hardness are what they stay.
    """

    texts_per_anchor: int = 0
    images_per_anchor: int = 0
    pairs_per_anchor: int = 0
    wrong_texts_per_anchor: int = 0
    confined: bool = False
    share_start: float = 1.0
    window: float = 1.0
    hardness_start: float = 1.0
    hardness_end: float = 1.0
    grown_after: int = 0

    def share(self, number: int) -> float:
        """The part of the numbers per anchor that enters batch `number`, from 0."""
        return self._grown(self.share_start, 1.0, number)

    def hardness(self, number: int) -> float:
        """Where the window lies for batch `number`, from 0 to 1."""
        return self._grown(self.hardness_start, self.hardness_end, number)

    def _grown(self, start: float, end: float, number: int) -> float:
        done = 1.0 if self.grown_after < 1 else min(1.0, number / self.grown_after)
        return start + (end - start) * done

    def windowed(self, candidates: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """Leaves those in the window of batch `number`, and puts -1 for the others.

        Args:
            candidates: A row an anchor, the hardest first, -1 fills up.
            number: Of the batch, from 0.
        """
        there = (candidates >= 0).sum(axis=1, keepdims=True)
        # Wide enough that no number of negatives per anchor ever goes short because of it.
        least = max(self.texts_per_anchor, self.images_per_anchor, self.pairs_per_anchor)
        width = np.minimum(there, np.maximum(np.ceil(self.window * there), least))
        first = np.rint((1.0 - self.hardness(number)) * (there - width))
        place = np.arange(candidates.shape[1])
        return np.where((place >= first) & (place < first + width), candidates, _NOTHING)

    def drawn(
        self, candidates: NDArray[np.int64], per_anchor: int, number: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draws for each anchor of batch `number`, without repetition within an anchor.

        Args:
            candidates: A row an anchor, -1 fills up.
            per_anchor: Of them in the end; now it is that times `share(number)`.
            number: Of the batch, from 0.
            rng: Of the draws.

        Returns:
            A row an anchor, -1 where it has less; shape (n, at most per_anchor).
        """
        now = per_anchor * self.share(number)
        most = min(math.ceil(now), candidates.shape[1])
        order = np.where(candidates < 0, 2.0, rng.random(candidates.shape))
        chosen = np.take_along_axis(candidates, np.argsort(order, axis=1)[:, :most], axis=1)
        wanted = math.floor(now) + (rng.random(len(candidates)) < now - math.floor(now))
        return np.where(np.arange(most) < wanted[:, None], chosen, _NOTHING)


def hard_share_of(section: HardNegativesConfig | None, steps: int) -> HardShare:
    """What a configuration asks for, over a run of so many steps."""
    if section is None:
        return HardShare()
    return HardShare(
        texts_per_anchor=section.texts_per_anchor,
        images_per_anchor=section.images_per_anchor,
        pairs_per_anchor=section.pairs_per_anchor,
        wrong_texts_per_anchor=section.wrong_captions_per_anchor,
        confined=section.confined,
        share_start=section.share_start,
        window=section.window,
        hardness_start=section.hardness_start,
        hardness_end=section.hardness_end,
        grown_after=round(section.grown_at * steps),
    )


def all_of(drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """What was drawn for any anchor, each once, sorted: one column is enough for all anchors."""
    return np.unique(drawn[drawn >= 0])


def drawn_for(drawn: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Which column was drawn for which anchor: 1 where it was, else 0.

    Args:
        drawn: A row an anchor, -1 fills up, shape (n, k).
        columns: Different ones, in any order, shape (m,).

    Returns:
        Shape (n, m).
    """
    own = np.zeros((len(drawn), len(columns)), dtype=np.float32)
    if own.size == 0:
        return own
    order = np.argsort(columns)
    place = order[np.minimum(np.searchsorted(columns, drawn, sorter=order), len(columns) - 1)]
    row, _ = np.nonzero(columns[place] == drawn)
    own[row, place[columns[place] == drawn]] = 1.0
    return own
