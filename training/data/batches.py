"""Cuts batches from pairs: endless, seeded, of constant size, one part for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from twinlens.training.data.batch_size import check_batch_size
from twinlens.training.data.equal_pairs import EqualPairs
from twinlens.training.data.errors import DataError
from twinlens.training.data.hard_share import HardShare, all_of, drawn_for
from twinlens.training.data.mined import MinedTable
from twinlens.training.data.pair_order import CaptionChoice, PairOrder
from twinlens.training.data.pairs import Pairs, pairs_of_captions, refuse_without_negatives


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
        number: Of the batch in the run, from 0.
        extra_text_weights: How much each of all extra captions counts for an own pair, float32, shape (n, T); None: all
            alike.
        extra_image_weights: The same of all extra pictures, shape (n, I).
    """

    pixels_nhwc: Tensor
    token_ids_nl: Tensor
    equal_texts: Tensor
    equal_images: Tensor
    pairs: int
    first: int = 0
    weights: Tensor | None = None
    number: int = 0
    extra_text_weights: Tensor | None = None
    extra_image_weights: Tensor | None = None

    @property
    def samples(self) -> int:
        """n, by the name that the loop counts by."""
        return self.pairs

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {n: v.to(device) for n, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)


@dataclass(frozen=True)
class _Chosen:
    """What a batch of all ranks holds.

    Attributes:
        rows: Its pairs.
        shown: The captions that they are shown with, as rows of `Pairs.token_ids_ml`.
        texts: Its extra captions, likewise.
        images: The pairs whose pictures are its extra ones.
        image_captions: A caption of each of those.
        texts_drawn: Which extra captions were drawn for each of its pairs; -1 fills up.
        images_drawn: Which extra pictures.
    """

    rows: NDArray[np.int64]
    shown: NDArray[np.int64]
    texts: NDArray[np.int64]
    images: NDArray[np.int64]
    image_captions: NDArray[np.int64]
    texts_drawn: NDArray[np.int64]
    images_drawn: NDArray[np.int64]


class PairBatches(IterableDataset[Batch]):
    """Walks through the pairs in a new order each epoch; what is left at its end opens the next batch.

    So every pair is seen equally often, unless classes are balanced (mined pairs come on top), and every batch has its
    full size. No pair comes twice in one batch. A pair with several captions is shown with another each time. All ranks
    draw the same batches, and each cuts its own part.
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
        balance: float = 0.0,
    ) -> None:
        """Checks that the batches can teach something.

        Args:
            pairs: The data.
            batch_size: In pairs, of all ranks together.
            seed: Of order and choice.
            mined: Hard negatives.
            share: How many of them enter, and of the captions that the data calls wrong.
            start: The number of the first batch to give, from 0.
            rank: Whose part of each batch is given.
            world_size: How many ranks share a batch.
            balance: The power by which large classes are seen less often; see `PairOrder`.

        Raises:
            DataError: if the batch has fewer than 2 pairs or more than there are, the ranks cannot share it, all pairs
                are equals, or wrong captions are asked for and there are none.
        """
        check_batch_size(batch_size, world_size)
        if len(pairs) < 2:
            raise DataError(f"{len(pairs)} usable pair(s) in the data: at least 2 are needed, better thousands")
        if batch_size > len(pairs):
            raise DataError(f"batch_size {batch_size} is larger than the data ({len(pairs)} pairs to train on)")
        share = share or HardShare()
        if mined is None and not share.wrong_texts_per_anchor:
            refuse_without_negatives(pairs)
        if share.wrong_texts_per_anchor and not pairs.wrong_texts.size:
            raise DataError("the data holds no wrong captions: name their column with data.wrong_caption_column")
        self._pairs = pairs
        self._equals = EqualPairs(pairs.image_keys, pairs.text_keys, pairs.first_captions, pairs.caption_counts)
        self._pair_of = pairs_of_captions(pairs)
        self._balance = balance
        self._batch_size = batch_size
        self._seed = seed
        nothing = np.empty((len(pairs), 0), dtype=np.int64)
        self._mined = mined or MinedTable(nothing, nothing, unknown_rows=0)
        self._share = share
        self._start = start
        self._rank = rank
        self._world_size = world_size

    def __iter__(self) -> Iterator[Batch]:
        # What comes before the start is drawn, not cut: each choice depends on those before.
        for number, chosen in islice(enumerate(self._choices()), self._start, None):
            yield self._batch(number, chosen)

    def _choices(self) -> Iterator[_Chosen]:
        pairs = self._pairs
        rng = np.random.default_rng(self._seed)
        order = PairOrder(len(pairs), self._batch_size, rng, classes=pairs.classes, power=self._balance)
        captions = CaptionChoice(pairs.first_captions, pairs.caption_counts, rng)
        share, mined = self._share, self._mined
        for number in count():
            rows = order.next_ones()
            taken = len(rows)
            if share.pairs_per_anchor:
                rows, taken = self._with_mined_pairs(rows, number, rng)
            order.take(taken)
            shown = captions.advance(rows)
            texts_drawn = np.concatenate(
                [
                    share.drawn(share.windowed(mined.texts[rows], number), share.texts_per_anchor, number, rng),
                    share.drawn(pairs.wrong_texts[rows], share.wrong_texts_per_anchor, number, rng),
                ],
                axis=1,
            )
            images_drawn = share.drawn(share.windowed(mined.images[rows], number), share.images_per_anchor, number, rng)
            texts, images = all_of(texts_drawn), all_of(images_drawn)
            yield _Chosen(rows, shown, texts, images, captions.now(images), texts_drawn, images_drawn)

    def _with_mined_pairs(
        self, waiting: NDArray[np.int64], number: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], int]:
        """Takes waiting pairs with their mined ones until the batch is full; gives it and how many were waiting."""
        share, mined = self._share, self._mined
        texts = share.windowed(mined.texts[waiting], number)
        of_texts = np.where(texts < 0, texts, self._pair_of[texts])
        candidates = np.sort(np.concatenate([of_texts, share.windowed(mined.images[waiting], number)], axis=1), axis=1)
        candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = -1  # mined by its caption and by its picture
        drawn = share.drawn(candidates, share.pairs_per_anchor, number, rng)
        rows: dict[int, None] = {}
        taken = 0
        for anchor, others in zip(waiting.tolist(), drawn.tolist(), strict=True):
            if len(rows) >= self._batch_size:
                break
            taken += 1
            rows |= dict.fromkeys([anchor, *(row for row in others if row >= 0)])
        return np.fromiter(rows, dtype=np.int64)[: self._batch_size], taken

    def _batch(self, number: int, chosen: _Chosen) -> Batch:
        """This rank's part of batch `number`."""
        pairs = self._pairs
        texts = self._shared(chosen.texts, number)
        places = self._shared(np.arange(len(chosen.images)), number)
        images, image_captions = chosen.images[places], chosen.image_captions[places]
        own, shown = self._own(chosen.rows), self._own(chosen.shown)
        own_texts = np.concatenate([shown, self._own(texts)])
        own_images = np.concatenate([own, self._own(images)])
        equal = self._equals(own, shown, chosen.rows, chosen.shown)
        equal_texts = self._equals(own, shown, self._pair_of[texts], texts)
        equal_images = self._equals(own, shown, images, image_captions)
        return Batch(
            pixels_nhwc=torch.from_numpy(pairs.pixels_nhwc[pairs.slots[own_images]]),
            token_ids_nl=torch.from_numpy(pairs.token_ids_ml[own_texts]),
            equal_texts=torch.from_numpy(np.concatenate([equal, equal_texts], axis=1)),
            equal_images=torch.from_numpy(np.concatenate([equal, equal_images], axis=1)),
            pairs=len(own),
            first=self._rank * len(own),
            weights=None if pairs.weights is None else torch.from_numpy(pairs.weights[own]),
            number=number,
            extra_text_weights=self._confined(chosen.texts_drawn, texts),
            extra_image_weights=self._confined(chosen.images_drawn, images),
        )

    def _confined(self, drawn: NDArray[np.int64], extra: NDArray[np.int64]) -> Tensor | None:
        """1 where an extra was drawn for an own pair, else 0; None where it is a negative of all."""
        return torch.from_numpy(drawn_for(self._own(drawn), extra)) if self._share.confined else None

    def _shared(self, extra: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """As many as all ranks can have equally many of; which are left out goes round with the batches."""
        left_out = len(extra) % self._world_size
        return np.roll(extra, number)[left_out:] if left_out else extra

    def _own(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        share = len(rows) // self._world_size
        return rows[self._rank * share : (self._rank + 1) * share]
