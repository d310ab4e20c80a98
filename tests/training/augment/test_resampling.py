"""Crop, resize, flip and blur by matrices against torchvision, picture by picture."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from twinlens.training.augment.resampling import apply_separable, blur_matrices, resize_matrices

How = Literal["bilinear", "bicubic"]


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("source", "side"), [(32, 32), (96, 64), (40, 64), (64, 16), (33, 8), (20, 7)])
def test_crops_of_every_shape_are_resized_as_torchvision_resizes_them(how: How, source: int, side: int) -> None:
    generator = torch.Generator().manual_seed(source * side)
    count = 48
    heights, widths = (torch.randint(1, source + 1, (count,), generator=generator) for _ in range(2))
    heights[0], widths[0] = source, source
    heights[1], widths[1] = 1, 1
    tops = (torch.rand(count, generator=generator) * (source - heights + 1)).long()
    lefts = (torch.rand(count, generator=generator) * (source - widths + 1)).long()
    flipped = torch.rand(count, generator=generator) < 0.5
    pixels = torch.rand(count, source, 3, source, generator=generator)
    rows = resize_matrices(tops, heights, torch.zeros(count, dtype=torch.bool), source, side, how)
    columns = resize_matrices(lefts, widths, flipped, source, side, how)
    made = apply_separable(pixels, rows, columns)
    for row in range(count):
        box = [int(each[row]) for each in (tops, lefts, heights, widths)]
        picture = pixels[row].transpose(0, 1)
        wanted = functional.resized_crop(picture, *box, [side, side], InterpolationMode(how), antialias=True)
        if flipped[row]:
            wanted = functional.horizontal_flip(wanted)
        torch.testing.assert_close(made[row].transpose(0, 1), wanted, rtol=0, atol=5e-6)


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_the_whole_picture_at_its_own_size_is_left_alone(how: How) -> None:
    whole = resize_matrices(torch.tensor([0]), torch.tensor([24]), torch.tensor([False]), 24, 24, how)
    torch.testing.assert_close(whole[0], torch.eye(24))
    mirrored = resize_matrices(torch.tensor([0]), torch.tensor([24]), torch.tensor([True]), 24, 24, how)
    torch.testing.assert_close(mirrored[0], torch.eye(24).flip(0))


@pytest.mark.parametrize(("side", "taps"), [(16, 3), (32, 13), (32, 31), (8, 15), (20, 7)])
def test_each_picture_is_blurred_by_its_own_sigma_as_torchvision_blurs(side: int, taps: int) -> None:
    generator = torch.Generator().manual_seed(side)
    sigmas = torch.empty(12).uniform_(0.1, 4.0, generator=generator)
    pixels = torch.rand(12, side, 3, side, generator=generator)
    matrices = blur_matrices(sigmas, side, taps)
    made = apply_separable(pixels, matrices, matrices)
    for row, sigma in enumerate(sigmas.tolist()):
        wanted = functional.gaussian_blur(pixels[row].transpose(0, 1), [taps, taps], [sigma])
        torch.testing.assert_close(made[row].transpose(0, 1), wanted, rtol=0, atol=5e-6)


def test_a_blur_keeps_a_plain_picture_as_it_is() -> None:
    matrices = blur_matrices(torch.tensor([0.1, 1.0, 5.0]), 16, 9)
    torch.testing.assert_close(matrices.sum(dim=2), torch.ones(3, 16))
