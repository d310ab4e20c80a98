"""Cuts batches from pictures: endless, seeded, of constant size, the same whoever asks and from wherever one starts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.data.picture_set import PictureSet


class PictureBatches(IterableDataset[PictureBatch]):
    """Walks through the pictures in a new order each epoch; what does not fill a batch is left out of that epoch.

    Batch i depends on the seed and i alone, so that a run goes on where it stopped, and every rank cuts its own part of
    the same global batch.
    """

    def __init__(
        self,
        pictures: PictureSet,
        batch_size: int,
        seed: int,
        *,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Checks that the batches can be cut.

        Args:
            pictures: The data.
            batch_size: Of all ranks together.
            seed: Of the order.
            start: The number of the first batch to give.
            rank: Whose part of each batch is given.
            world_size: How many ranks share a batch.

        Raises:
            DataError: if the batch has fewer than two pictures or more than there are, or the ranks cannot share it.
        """
        if batch_size < 2:
            raise DataError("batch_size must be at least 2: batch statistics and negatives need more than one picture")
        if batch_size > len(pictures):
            raise DataError(
                f"batch_size {batch_size} is larger than the data ({len(pictures)} pictures); lower train.batch_size"
            )
        if batch_size % world_size:
            raise DataError(f"batch_size {batch_size} is not a multiple of the {world_size} processes that share it")
        if batch_size == world_size:
            raise DataError(f"batch_size {batch_size} leaves each of the {world_size} processes one picture; take more")
        self._pictures = pictures
        self._batch_size = batch_size
        self._seed = seed
        self._start = start
        self._rank = rank
        self._world_size = world_size

    @property
    def batches_per_epoch(self) -> int:
        """Whole batches in one walk through the data."""
        return len(self._pictures) // self._batch_size

    def __iter__(self) -> Iterator[PictureBatch]:
        number = self._start
        epoch, order = -1, np.empty(0, dtype=np.int64)
        while True:
            if number // self.batches_per_epoch != epoch:
                epoch = number // self.batches_per_epoch
                order = np.random.default_rng((self._seed, epoch)).permutation(len(self._pictures))
            first = number % self.batches_per_epoch * self._batch_size
            share = self._batch_size // self._world_size
            rows = order[first + self._rank * share : first + (self._rank + 1) * share]
            yield self._batch(rows, number)
            number += 1

    def _batch(self, rows: NDArray[np.int64], number: int) -> PictureBatch:
        return PictureBatch(
            pixels_nhwc=torch.from_numpy(self._pictures.pixels_nhwc[rows]),
            labels=torch.from_numpy(self._pictures.labels[rows]),
            rows=torch.from_numpy(rows),
            number=number,
        )
