from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.data.picture_set import PictureSet


@pytest.fixture(scope="module")
def pictures() -> PictureSet:
    pixels = np.arange(22, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), dtype=np.uint8)
    names = tuple(f"{i}.png" for i in range(22))
    return PictureSet(pixels, np.arange(22) % 2, ("even", "odd"), names, names, {})


def rows(batches: PictureBatches, count: int) -> list[list[int]]:
    return [batch.rows.tolist() for batch in islice(batches, count)]


def test_an_epoch_shows_no_picture_twice_and_the_next_one_another_order(pictures: PictureSet) -> None:
    cut = rows(PictureBatches(pictures, 5, seed=1), 8)
    for epoch in (cut[:4], cut[4:]):
        assert len({row for batch in epoch for row in batch}) == 20
    assert cut[:4] != cut[4:]
    assert PictureBatches(pictures, 5, seed=1).batches_per_epoch == 4


def test_pixels_and_labels_belong_to_their_rows(pictures: PictureSet) -> None:
    for number, batch in enumerate(islice(PictureBatches(pictures, 4, seed=0), 7)):
        assert (batch.number, batch.samples) == (number, 4)
        assert batch.pixels_nhwc[:, 0, 0, 0].tolist() == batch.rows.tolist()
        assert batch.labels.tolist() == [row % 2 for row in batch.rows.tolist()]
        assert (batch.pixels_nhwc.dtype, batch.labels.dtype) == (torch.uint8, torch.int64)


def test_a_batch_depends_on_seed_and_number_alone(pictures: PictureSet) -> None:
    whole = rows(PictureBatches(pictures, 5, seed=3), 12)
    assert rows(PictureBatches(pictures, 5, seed=3, start=7), 5) == whole[7:]
    assert rows(PictureBatches(pictures, 5, seed=3), 12) == whole
    assert rows(PictureBatches(pictures, 5, seed=4), 12) != whole


def test_ranks_share_the_batch_that_one_would_cut(pictures: PictureSet) -> None:
    whole = rows(PictureBatches(pictures, 6, seed=3), 5)
    parts = [rows(PictureBatches(pictures, 6, seed=3, rank=rank, world_size=3), 5) for rank in range(3)]
    assert [[row for part in parts for row in part[i]] for i in range(5)] == whole


@pytest.mark.parametrize(
    ("batch_size", "world_size", "message"),
    [
        (1, 1, "batch_size must be at least 2"),
        (23, 1, r"batch_size 23 is larger than the data \(22 pictures\); lower train.batch_size$"),
        (5, 2, "batch_size 5 is not a multiple of the 2 processes"),
        (4, 4, "leaves each of the 4 processes one picture"),
    ],
)
def test_batches_that_cannot_be_cut_are_refused(
    pictures: PictureSet, batch_size: int, world_size: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        PictureBatches(pictures, batch_size, seed=0, world_size=world_size)
