"""Cuts batches from pairs: endless, seeded, of constant size, one part for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from twinlens.training.data.equal_pairs import EqualPairs
from twinlens.training.data.errors import DataError
from twinlens.training.data.mined import MinedTable
from twinlens.training.data.pairs import Pairs

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """n pairs of this rank, and the extra captions and pictures that stand in it as negatives only.

    All ranks together have N = ranks · n pairs, T = ranks · t extra captions and I = ranks · i extra pictures; the part
    of a rank follows that of the rank before it. In one process its own are all.

    Attributes:
        pixels_nhwc: uint8, shape (n + i, size, size, 3): the own pairs' pictures, then i extra ones.
        token_ids_nl: int64, shape (n + t, length): the own pairs' captions, then t extra ones.
        equal_texts: bool, shape (n, N + T): which captions, of all pairs, then all extra ones, are as right for an own
            pair's picture as its own; see `EqualPairs`.
        equal_images: bool, shape (n, N + I): which pictures are as right for an own pair's caption as its own.
        pairs: n.
        first: Own pair k is pair `first + k` of all.
        weights: How much each own pair counts, float32, shape (n,); None: all alike.
    """

    pixels_nhwc: Tensor
    token_ids_nl: Tensor
    equal_texts: Tensor
    equal_images: Tensor
    pairs: int
    first: int = 0
    weights: Tensor | None = None

    @property
    def samples(self) -> int:
        """n, by the name that the loop counts by."""
        return self.pairs

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {n: v.to(device) for n, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)


@dataclass(frozen=True)
class HardShare:
    """How many mined negatives enter a batch for each of its pairs, drawn anew each time.

    Attributes:
        texts_per_anchor: Captions that are negatives only, on top of the batch.
        images_per_anchor: Pictures that are negatives only, on top of the batch.
        pairs_per_anchor: Whole pairs that take the place of others, so the batch keeps its size: their captions and
            pictures are negatives of their anchors, and anchors themselves (as in NegCLIP, Yuksekgonul et al. 2023).
    """

    texts_per_anchor: int = 0
    images_per_anchor: int = 0
    pairs_per_anchor: int = 0


class PairBatches(IterableDataset[Batch]):
    """Walks through the pairs in a new order each epoch; what is left at its end opens the next batch.

    So every pair is seen equally often (mined pairs come on top) and every batch has its full size. No pair comes
    twice in one batch. All ranks draw the same batches, and each cuts its own part.
    """

    def __init__(
        self,
        pairs: Pairs,
        batch_size: int,
        seed: int,
        *,
        mined: MinedTable | None = None,
        share: HardShare | None = None,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Checks that the batches can teach something.

        Args:
            pairs: The data.
            batch_size: In pairs, of all ranks together.
            seed: Of order and choice.
            mined: Hard negatives.
            share: How many of them enter.
            start: The number of the first batch to give, from 0.
            rank: Whose part of each batch is given.
            world_size: How many ranks share a batch.

        Raises:
            DataError: if the batch has fewer than 2 pairs or more than there are, or the ranks cannot share it.
        """
        if batch_size < 2:
            raise DataError(
                "batch_size must be at least 2: one pair has no negatives, its loss is 0 and teaches nothing"
            )
        if len(pairs) < 2:
            raise DataError(f"{len(pairs)} usable pair(s) in the data: at least 2 are needed, better thousands")
        if batch_size > len(pairs):
            raise DataError(f"batch_size {batch_size} is larger than the data ({len(pairs)} pairs)")
        if batch_size % world_size:
            raise DataError(f"batch_size {batch_size} is not a multiple of the {world_size} processes that share it")
        self._pairs = pairs
        self._equals = EqualPairs(pairs.image_keys, pairs.text_keys)
        self._batch_size = batch_size
        self._seed = seed
        self._mined = mined
        self._share = share or HardShare()
        self._start = start
        self._rank = rank
        self._world_size = world_size

    def __iter__(self) -> Iterator[Batch]:
        # What comes before the start is drawn, not cut: each choice depends on those before.
        for number, chosen in islice(enumerate(self._choices()), self._start, None):
            yield self._batch(number, *chosen)

    def _choices(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """For each batch of all ranks its pairs, its extra captions and its extra pictures, as rows."""
        rng = np.random.default_rng(self._seed)
        waiting = _NONE
        while True:
            if len(waiting) < self._batch_size:
                fresh = rng.permutation(len(self._pairs))
                # Those already waiting go to the end of the new epoch, so that none is twice in a batch.
                fresh = np.concatenate([fresh[~np.isin(fresh, waiting)], fresh[np.isin(fresh, waiting)]])
                waiting = np.concatenate([waiting, fresh])
            if self._mined is None or self._share.pairs_per_anchor == 0:
                rows, waiting = waiting[: self._batch_size], waiting[self._batch_size :]
            else:
                rows, waiting = self._with_mined_pairs(self._mined, waiting, rng)
            texts = images = _NONE
            if self._mined is not None:
                texts = _draw(self._mined.texts[rows], self._share.texts_per_anchor, rng)
                images = _draw(self._mined.images[rows], self._share.images_per_anchor, rng)
            yield rows, texts, images

    def _with_mined_pairs(
        self, mined: MinedTable, waiting: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Takes waiting pairs with their mined ones until the batch is full; gives it and those still waiting."""
        count = self._share.pairs_per_anchor
        rows: dict[int, None] = {}
        taken = 0
        for anchor in waiting:
            if len(rows) >= self._batch_size:
                break
            taken += 1
            rows[int(anchor)] = None
            candidates = np.concatenate([mined.texts[anchor], mined.images[anchor]])
            candidates = np.unique(candidates[candidates >= 0])
            for row in rng.permutation(candidates)[:count]:
                rows[int(row)] = None
        return np.fromiter(rows, dtype=np.int64)[: self._batch_size], waiting[taken:]

    def _batch(
        self, number: int, rows: NDArray[np.int64], texts: NDArray[np.int64], images: NDArray[np.int64]
    ) -> Batch:
        """This rank's part of batch `number`."""
        pairs = self._pairs
        texts, images = self._shared(texts, number), self._shared(images, number)
        own = self._own(rows)
        own_texts = np.concatenate([own, self._own(texts)])
        own_images = np.concatenate([own, self._own(images)])
        return Batch(
            pixels_nhwc=torch.from_numpy(pairs.pixels_nhwc[pairs.slots[own_images]]),
            token_ids_nl=torch.from_numpy(pairs.token_ids_nl[own_texts]),
            equal_texts=torch.from_numpy(self._equals(own, np.concatenate([rows, texts]))),
            equal_images=torch.from_numpy(self._equals(own, np.concatenate([rows, images]))),
            pairs=len(own),
            first=self._rank * len(own),
        )

    def _shared(self, extra: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """As many as all ranks can have equally many of; which are left out goes round with the batches."""
        left_out = len(extra) % self._world_size
        return np.roll(extra, number)[left_out:] if left_out else extra

    def _own(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        share = len(rows) // self._world_size
        return rows[self._rank * share : (self._rank + 1) * share]


def _draw(candidates: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Up to `count` of each row, without repetition over the whole batch (one column is enough for all its rows)."""
    if count < 1 or candidates.shape[1] == 0:
        return _NONE
    order = rng.random(candidates.shape)
    order[candidates < 0] = 2.0
    chosen = np.take_along_axis(candidates, np.argsort(order, axis=1)[:, :count], axis=1)
    return np.unique(chosen[chosen >= 0])
