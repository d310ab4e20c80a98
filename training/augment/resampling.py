"""Crop, flip, resize and blur of whole batches as products with small matrices, one pair a picture.

A separable filter is a matrix on the rows and one on the columns. A batch of them is a `bmm` each, fast on CPU and GPU
alike, while a batch of different crops would be a loop, and a depthwise convolution is slow on CPUs. With pictures laid
out as (n, h, 3, w) both products are over views of the memory: nothing is copied.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from twinlens.training.augment.recipe import Interpolation


def resize_matrices(
    starts: Tensor, lengths: Tensor, flipped: Tensor, source: int, side: int, how: Interpolation
) -> Tensor:
    """One-dimensional crops, antialiased resizes and flips, as torch's `interpolate(antialias=True)` defines them.

    Args:
        starts: First pixel of each crop, int64, (n,).
        lengths: Pixels in each crop, int64, (n,).
        flipped: bool, (n,): which are mirrored afterwards.
        source: Pixels in the stored picture.
        side: Pixels wanted.
        how: The filter.

    Returns:
        float32, (n, side, source), on the device of `starts`; rows sum to 1.
    """
    device = starts.device
    # Few pixels of the source count for a pixel of the view, so only these weights are computed.
    widest = (1 if how == "bilinear" else 2) * max(1.0, source / side)
    taps = torch.arange(2 * math.ceil(widest) + 1, device=device)
    length = lengths[:, None]
    scale = length / side
    stretch = scale.clamp(min=1.0)
    reach = stretch if how == "bilinear" else 2 * stretch
    centre = scale * (torch.arange(side, device=device) + 0.5)
    first = (centre - reach + 0.5).floor_().clamp_(min=0)
    last = torch.minimum((centre + reach + 0.5).floor_(), length)
    at = first[:, :, None] + taps
    distance = (at - centre[:, :, None] + 0.5).div_(stretch[:, :, None]).abs_()
    weight = (1 - distance).clamp_(min=0) if how == "bilinear" else _cubic(distance)
    weight *= at < last[:, :, None]
    weight /= weight.sum(dim=2, keepdim=True)
    weight = torch.where(flipped[:, None, None], weight.flip(1), weight)
    at = torch.where(flipped[:, None, None], at.flip(1), at).long().add_(starts[:, None, None]).clamp_(max=source - 1)
    return torch.zeros(len(starts), side, source, device=device).scatter_add_(2, at, weight)


def _cubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = −0.5, which torch and Pillow use where they antialias; of x >= 0."""
    near = ((1.5 * x - 2.5) * x * x).add_(1)
    far = ((-0.5 * x + 2.5) * x - 4).mul_(x).add_(2)
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros((), device=x.device)))


def blur_matrices(sigmas: Tensor, side: int, taps: int) -> Tensor:
    """Gaussian filters with reflected edges, as torchvision's `gaussian_blur` defines them.

    Args:
        sigmas: Positive, (n,), in pixels.
        side: Pixels.
        taps: Width of the kernel: odd.

    Returns:
        float32, (n, side, side).
    """
    half = taps // 2
    offsets = torch.arange(-half, half + 1, device=sigmas.device)
    kernels = torch.softmax(-0.5 * (offsets / sigmas[:, None]).square(), dim=1)
    at = (torch.arange(side, device=sigmas.device)[:, None] + offsets).abs()
    at = torch.where(at >= side, 2 * (side - 1) - at, at)
    matrices = torch.zeros(len(sigmas), side, side, device=sigmas.device)
    return matrices.scatter_add_(2, at.expand(len(sigmas), -1, -1), kernels[:, None, :].expand(-1, side, -1))


def apply_separable(pixels_nhcw: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Applies a matrix to the rows' axis and one to the columns' axis of each picture.

    Args:
        pixels_nhcw: Contiguous, (n, h, c, w).
        rows: (n, h', h).
        columns: (n, w', w).

    Returns:
        (n, h', c, w').
    """
    n, height, channels, width = pixels_nhcw.shape
    down = torch.bmm(rows, pixels_nhcw.view(n, height, channels * width))
    across = torch.bmm(down.view(n, -1, width), columns.transpose(1, 2))
    return across.view(n, rows.shape[1], channels, columns.shape[1])
