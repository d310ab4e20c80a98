"""Augments a whole batch at once, on whichever device it lies.

What differs from torchvision picture by picture (`exact`), given the same draws: a picture stays in float32 from the
first step to the last, where torchvision rounds a uint8 picture after each. Nothing else: crops, orders, factors and
kernels are torchvision's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twinlens.training.augment import colour
from twinlens.training.augment.draws import BRIGHTNESS, CONTRAST, HUE, SATURATION, Draws
from twinlens.training.augment.recipe import Interpolation, View
from twinlens.training.augment.resampling import apply_separable, blur_matrices, resize_matrices

_OPERATIONS: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    BRIGHTNESS: colour.adjust_brightness,
    CONTRAST: colour.adjust_contrast,
    SATURATION: colour.adjust_saturation,
    HUE: colour.adjust_hue,
}


def augment_batched(pixels_nhcw: Tensor, view: View, draws: Draws) -> Tensor:
    """Makes one view of each picture.

    Args:
        pixels_nhcw: The stored pictures, float32 on the scale 0 to 1, (n, side, 3, side), contiguous.
        view: What is done.
        draws: How, for each picture.

    Returns:
        float32 on the scale 0 to 1, (n, view.side, 3, view.side).
    """
    pixels = _crop(pixels_nhcw, draws, view.side, view.interpolation)
    if view.jitter is not None:
        _jitter(pixels, draws)
    _change(pixels, draws.gray, lambda part, _: colour.luma(part).expand_as(part))
    if view.blur is not None:
        _change(pixels, draws.sigmas > 0, lambda part, rows: _blur(part, draws.sigmas[rows], view.taps))
    if view.solarize is not None:
        threshold = view.solarize.threshold
        _change(pixels, draws.solarized, lambda part, _: colour.solarize(part, threshold))
    return pixels


def _crop(pixels_nhcw: Tensor, draws: Draws, side: int, how: Interpolation) -> Tensor:
    source = pixels_nhcw.shape[-1]
    top, left, height, width = draws.boxes.to(pixels_nhcw.device, non_blocking=True).unbind(1)
    flipped = draws.flipped.to(pixels_nhcw.device, non_blocking=True)
    rows = resize_matrices(top, height, torch.zeros_like(flipped), source, side, how)
    columns = resize_matrices(left, width, flipped, source, side, how)
    pixels = apply_separable(pixels_nhcw, rows, columns)
    return pixels.clamp_(0, 1) if how == "bicubic" else pixels


def _jitter(pixels: Tensor, draws: Draws) -> None:
    """Each picture's four operations in its own order: at each place, those whose turn it is go together."""
    for place in range(4):
        for column, operation in _OPERATIONS.items():
            neutral = 0.0 if column == HUE else 1.0
            whose = draws.jittered & (draws.order[:, place] == column) & (draws.factors[:, column] != neutral)
            _change(pixels, whose, partial(_adjust, operation, draws.factors[:, column]))


def _adjust(operation: Callable[[Tensor, Tensor], Tensor], factors: Tensor, part: Tensor, rows: Tensor) -> Tensor:
    return operation(part, factors[rows].to(part.device, non_blocking=True))


def _blur(pixels: Tensor, sigmas: Tensor, taps: int) -> Tensor:
    matrices = blur_matrices(sigmas.to(pixels.device, non_blocking=True), pixels.shape[-1], taps)
    return apply_separable(pixels, matrices, matrices)


def _change(pixels: Tensor, whose: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Applies `change` in place to the pictures named by a mask on the CPU (so that no device is waited for)."""
    rows = whose.nonzero()[:, 0]
    if len(rows):
        there = rows.to(pixels.device, non_blocking=True)
        pixels.index_copy_(0, there, change(pixels.index_select(0, there), rows))
