"""Colour operations with a factor per picture against torchvision's functionals, one picture at a time."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from twinlens.training.augment import colour

Operation = Callable[[Tensor, Tensor], Tensor]


def photos(count: int, side: int, dtype: torch.dtype, seed: int) -> Tensor:
    """(n, h, 3, w), with plain grey, black, white, equal channels and pure colours among the pixels."""
    pixels = torch.rand(count, side, 3, side, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    pixels[:, 0, :, 0] = 0.5
    pixels[:, 0, :, 1] = 0.0
    pixels[:, 0, :, 2] = 1.0
    for place, bits in enumerate([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1)]):
        pixels[:, 1, :, place] = torch.tensor(bits, dtype=dtype)
        pixels[:, 2, :, place] = 0.25 + 0.5 * torch.tensor(bits, dtype=dtype)
    return pixels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        (colour.adjust_brightness, functional.adjust_brightness, 0.0, 2.0),
        (colour.adjust_contrast, functional.adjust_contrast, 0.0, 2.0),
        (colour.adjust_saturation, functional.adjust_saturation, 0.0, 2.0),
        (colour.adjust_hue, functional.adjust_hue, -0.5, 0.5),
    ],
    ids=["brightness", "contrast", "saturation", "hue"],
)
def test_each_picture_gets_its_own_factor_as_torchvision_applies_it(
    ours: Operation, theirs: Callable[[Tensor, float], Tensor], low: float, high: float, dtype: torch.dtype
) -> None:
    pixels = photos(24, 12, dtype, seed=1)
    factors = torch.linspace(low, high, 24, dtype=dtype)
    before = pixels.clone()
    made = ours(pixels, factors)
    assert torch.equal(pixels, before)
    # torchvision turns hues in float32 whatever it is given; colorsys, below, is the reference in float64.
    tolerance = 1e-12 if dtype == torch.float64 and ours is not colour.adjust_hue else 2e-6
    for row, factor in enumerate(factors.tolist()):
        wanted = theirs(pixels[row].transpose(0, 1), factor)
        torch.testing.assert_close(made[row].transpose(0, 1), wanted, rtol=0, atol=tolerance)


def test_turning_the_hue_is_that_of_the_hsv_cone() -> None:
    pixels = photos(1, 10, torch.float64, seed=2)
    for turn in (-0.5, -0.31, 0.0, 0.07, 0.5):
        made = colour.adjust_hue(pixels, torch.tensor([turn], dtype=torch.float64))
        for y in range(10):
            for x in range(10):
                hue, saturation, value = colorsys.rgb_to_hsv(*pixels[0, y, :, x].tolist())
                wanted = torch.tensor(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), dtype=torch.float64)
                torch.testing.assert_close(made[0, y, :, x], wanted, rtol=0, atol=1e-12)


def test_a_full_turn_in_two_halves_changes_nothing() -> None:
    pixels = photos(2, 8, torch.float64, seed=3)
    half = torch.tensor([0.5, -0.5], dtype=torch.float64)
    torch.testing.assert_close(colour.adjust_hue(colour.adjust_hue(pixels, half), half), pixels)


def test_brightness_of_pixels_and_solarisation_are_torchvisions() -> None:
    pixels = photos(3, 8, torch.float32, seed=4)
    nchw = pixels.transpose(1, 2)
    torch.testing.assert_close(colour.luma(pixels).transpose(1, 2), functional.rgb_to_grayscale(nchw))
    torch.testing.assert_close(colour.solarize(pixels, 0.5).transpose(1, 2), functional.solarize(nchw, 0.5))
