"""Augments picture by picture with torchvision v2's functionals on uint8, as the papers' own pipelines do."""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.augment.draws import BRIGHTNESS, CONTRAST, HUE, SATURATION, Draws
from twinlens.training.augment.recipe import View


def augment_exact(pixels_nchw: Tensor, view: View, draws: Draws) -> Tensor:
    """Makes one view of each picture.

    Args:
        pixels_nchw: The stored pictures, uint8 or (without rounding after each step) float32 on the scale 0 to 1.
        view: What is done.
        draws: How, for each picture.

    Returns:
        The views, of the same type, (n, 3, view.side, view.side).
    """
    return torch.stack([_picture(picture, view, draws, row) for row, picture in enumerate(pixels_nchw)])


def _picture(picture: Tensor, view: View, draws: Draws, row: int) -> Tensor:
    from torchvision.transforms import InterpolationMode  # noqa: PLC0415 - heavy, and the batched way needs none of it
    from torchvision.transforms.v2 import functional  # noqa: PLC0415

    top, left, height, width = draws.boxes[row].tolist()
    how = InterpolationMode(view.interpolation)
    size = [view.side, view.side]
    picture = functional.resized_crop(picture, top, left, height, width, size, how, antialias=True)
    if picture.is_floating_point():
        picture = picture.clamp(0, 1)
    if draws.flipped[row]:
        picture = functional.horizontal_flip(picture)
    if draws.jittered[row]:
        adjust = {
            BRIGHTNESS: functional.adjust_brightness,
            CONTRAST: functional.adjust_contrast,
            SATURATION: functional.adjust_saturation,
            HUE: functional.adjust_hue,
        }
        for column in draws.order[row].tolist():
            picture = adjust[column](picture, float(draws.factors[row, column]))
    if draws.gray[row]:
        picture = functional.rgb_to_grayscale(picture, num_output_channels=3)
    if draws.sigmas[row] > 0:
        picture = functional.gaussian_blur(picture, [view.taps, view.taps], [float(draws.sigmas[row])])
    if draws.solarized[row] and view.solarize is not None:
        scale = 1.0 if picture.is_floating_point() else 255.0
        picture = functional.solarize(picture, view.solarize.threshold * scale)
    return picture
