from __future__ import annotations

import pytest
import torch
from torch import Tensor

from twinlens.training.modules.jigsaw_tiles import jigsaw_tiles, tile_side


def pixels(size: int = 32) -> Tensor:
    return torch.rand(4, 3, size, size, generator=torch.Generator().manual_seed(0))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize(("size", "side"), [(225, 64), (32, 8), (64, 17), (96, 27)])
def test_tiles_take_the_papers_share_of_their_cells(size: int, side: int) -> None:
    assert tile_side(size, 3) == side


def places(tiles: Tensor, image: Tensor, side: int) -> list[list[tuple[int, int]]]:
    """Where in the picture each tile of each channel comes from: by comparing with every window."""
    windows = image.unfold(1, side, 1).unfold(2, side, 1)
    mean = windows.mean(dim=(-2, -1), keepdim=True)
    windows = (windows - mean) / (windows - mean).square().mean(dim=(-2, -1), keepdim=True).sqrt()
    found = []
    for tile in tiles:
        channels = []
        for channel in range(len(image)):
            error = (windows[channel] - tile[channel]).abs().amax(dim=(-2, -1))
            assert float(error.min()) < 1e-3
            row, column = divmod(int(error.argmin()), error.shape[1])
            channels.append((row, column))
        found.append(channels)
    return found


def test_every_tile_is_a_window_inside_its_own_cell() -> None:
    image = pixels()
    tiles = jigsaw_tiles(image, 3, generator=generator())
    assert tiles.shape == (4, 9, 3, 8, 8)
    corners = set()
    for i in range(4):
        for index, channels in enumerate(places(tiles[i], image[i], 8)):
            assert len(set(channels)) == 1  # all channels from one place
            row, column = channels[0]
            top, left = 1 + 10 * (index // 3), 1 + 10 * (index % 3)
            assert top <= row <= top + 2
            assert left <= column <= left + 2
            corners.add((row - top, column - left))
    assert len(corners) == 9  # the whole gap is used


def test_channels_are_shifted_against_each_other_within_the_cell() -> None:
    image = pixels()
    tiles = jigsaw_tiles(image, 3, channel_shift=2, generator=generator())
    apart = 0
    for i in range(4):
        for index, channels in enumerate(places(tiles[i], image[i], 8)):
            apart += len(set(channels)) > 1
            for row, column in channels:
                assert 0 <= row - 1 - 10 * (index // 3) <= 2
                assert 0 <= column - 1 - 10 * (index % 3) <= 2
    assert apart > 20


def test_each_channel_of_each_tile_has_mean_0_and_deviation_1() -> None:
    tiles = jigsaw_tiles(pixels(64), 3, generator=generator())
    torch.testing.assert_close(tiles.mean(dim=(-2, -1)), torch.zeros(4, 9, 3), rtol=0, atol=1e-5)
    torch.testing.assert_close(tiles.square().mean(dim=(-2, -1)), torch.ones(4, 9, 3), rtol=0, atol=1e-4)


def test_brightness_and_contrast_of_the_picture_do_not_matter() -> None:
    image = pixels()
    one = jigsaw_tiles(image, 3, generator=generator())
    other = jigsaw_tiles(5 * image - 2, 3, generator=generator())
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_flat_tiles_become_zero() -> None:
    assert not jigsaw_tiles(torch.full((1, 3, 32, 32), 0.3), 3).any()
