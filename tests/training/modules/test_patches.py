from __future__ import annotations

import pytest
import torch

from twinlens.training.modules.patches import patches_of, pixels_of


def test_patches_hold_what_slicing_gives() -> None:
    pixels = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    patches = patches_of(pixels, 4)
    assert patches.shape == (2, 6, 48)
    for index in range(6):
        row, column = divmod(index, 3)
        square = pixels[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert torch.equal(patches[:, index].reshape(2, 4, 4, 3), square.permute(0, 2, 3, 1))


def test_the_order_of_values_is_that_of_lightly() -> None:
    from lightly.models.utils import patchify

    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    assert torch.equal(patches_of(pixels, 3), patchify(pixels, 3))


def test_patches_put_back_give_the_picture() -> None:
    pixels = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(2))
    assert torch.equal(pixels_of(patches_of(pixels, 2), 2, rows=4), pixels)


def test_patches_that_do_not_tile_the_picture_are_refused() -> None:
    with pytest.raises(ValueError, match="do not tile a picture of 8x10"):
        patches_of(torch.zeros(1, 3, 8, 10), 4)
