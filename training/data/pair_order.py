"""In which order a run walks through its pairs, and which caption it shows each with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NONE = np.empty(0, dtype=np.int64)


class PairOrder:
    """An endless queue of pairs, epoch after epoch, each epoch in a new order.

    Without classes every pair stands in it once an epoch. With them a class of c pairs gets a share of the epoch in
    proportion to c^(1 - power), as far as no pair has to come twice in a batch: its pairs come more often or less often
    than once, at times spread over the epoch.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        rng: np.random.Generator,
        *,
        classes: NDArray[np.int64] | None = None,
        power: float = 0.0,
    ) -> None:
        """Starts at the first epoch.

        Args:
            count: How many pairs there are.
            batch_size: How many different ones are looked at together, at most `count`.
            rng: Draws the order.
            classes: Of the pairs, from 0, shape (count,); None: none.
            power: 0 takes the classes as they come, 1 takes them equally often.
        """
        self._count = count
        self._batch_size = batch_size
        self._rng = rng
        self._visits = None if classes is None or power == 0 else _visits(classes, power, batch_size)
        self._owed: NDArray[np.float64] | None = None
        self._queue = _NONE
        self._put_off = _NONE  # these waited already, and stood a second time in a batch

    def next_ones(self) -> NDArray[np.int64]:
        """The pairs of the next batch, all different, in the order of the queue."""
        waiting, places = self._look()
        return waiting[places]

    def take(self, count: int) -> None:
        """Drops the first so many of `next_ones` from the queue."""
        if not count:
            return
        waiting, places = self._look()
        end = int(places[count - 1]) + 1
        # A pair that comes a second time waits for the next batch.
        again = np.delete(waiting[:end], places[:count])
        from_queue = end - len(self._put_off)
        if from_queue < 0:
            again = np.concatenate([again, self._put_off[end:]])
        self._put_off = again
        self._queue = self._queue[max(0, from_queue) :]

    def _look(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What waits, as far as it matters, and the places in it of the first different ones."""
        ahead = 2 * self._batch_size
        while True:
            waiting = np.concatenate([self._put_off, self._queue[:ahead]])
            places = np.sort(np.unique(waiting, return_index=True)[1])[: self._batch_size]
            if len(places) == self._batch_size:
                return waiting, places
            if ahead >= len(self._queue):
                self._queue = np.concatenate([self._queue, self._epoch()])
            ahead *= 2

    def _epoch(self) -> NDArray[np.int64]:
        if self._visits is None:
            return self._rng.permutation(self._count)
        # What a pair is owed in part is carried over, so that all of a class are seen equally often in the long run.
        self._owed = (self._rng.random(self._count) if self._owed is None else self._owed) + self._visits
        visits = self._owed.astype(np.int64)
        self._owed -= visits
        pairs = np.repeat(np.arange(self._count), visits)
        # The k-th of a pair's v visits falls into the k-th of v equal parts of the epoch.
        nth = np.arange(len(pairs)) - np.repeat(np.cumsum(visits) - visits, visits)
        times = (nth + self._rng.random(len(pairs))) / visits[pairs]
        return pairs[np.argsort(times, kind="stable")]


def _visits(classes: NDArray[np.int64], power: float, batch_size: int) -> NDArray[np.float64]:
    """How often each pair is to come in an epoch on average: as many in all as there are pairs, none twice a batch."""
    wanted = np.bincount(classes)[classes].astype(np.float64) ** -power
    in_a_batch = np.zeros(len(classes))
    always = np.zeros(len(classes), dtype=np.bool_)
    while True:
        rest = wanted[~always].sum()
        scale = (batch_size - always.sum()) / rest if rest else 0.0
        in_a_batch = np.where(always, 1.0, wanted * scale)
        if (in_a_batch <= 1.0).all():
            return np.asarray(in_a_batch * (len(classes) / batch_size))
        always |= in_a_batch >= 1.0


class CaptionChoice:
    """Which of its captions a pair is shown with: each in turn, before any comes again."""

    def __init__(self, first: NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Draws the caption that each pair starts with.

        Args:
            first: Pair i has the captions from this one on, shape (n,).
            counts: How many it has, shape (n,).
            rng: Not drawn from where no pair has several.
        """
        self._first = first
        self._counts = counts
        self._several = bool((counts > 1).any())
        self._shown = rng.integers(0, counts) if self._several else np.zeros(len(counts), dtype=np.int64)

    def advance(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The captions that these pairs, all different, are shown with the next time."""
        if self._several:
            self._shown[pairs] = (self._shown[pairs] + 1) % self._counts[pairs]
        return self.now(pairs)

    def now(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The captions that they were last shown with."""
        return self._first[pairs] + self._shown[pairs]
