"""Crop, flip, resize and blur of whole batches as products with small matrices, one pair a picture.

A separable filter is a matrix on the rows and one on the columns. A batch of them is one `bmm`, which is as fast on a
CPU as on a GPU, while a batch of different crops would be a loop and a depthwise convolution is slow on CPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.augment.recipe import Interpolation


def resize_matrices(
    starts: Tensor, lengths: Tensor, flipped: Tensor, source: int, side: int, how: Interpolation
) -> Tensor:
    """One-dimensional crops, antialiased resizes and flips, as torch's `interpolate(antialias=True)` defines them.

    Args:
        starts: First pixel of each crop, (n,).
        lengths: Pixels in each crop, (n,).
        flipped: bool, (n,): which are mirrored afterwards.
        source: Pixels in the stored picture.
        side: Pixels wanted.
        how: The filter.

    Returns:
        float32, (n, side, source), on the device of `starts`; rows sum to 1.
    """
    device = starts.device
    length = lengths.to(torch.float32)[:, None, None]
    scale = length / side
    stretch = scale.clamp(min=1.0)
    reach = (1.0 if how == "bilinear" else 2.0) * stretch
    out = torch.arange(side, device=device, dtype=torch.float32)[None, :, None]
    out = torch.where(flipped[:, None, None], side - 1 - out, out)
    centre = scale * (out + 0.5)
    inside = torch.arange(source, device=device, dtype=torch.float32)[None, None, :] - starts[:, None, None]
    first = (centre - reach + 0.5).floor().clamp(min=0.0)
    last = torch.minimum((centre + reach + 0.5).floor(), length)
    distance = (inside - centre + 0.5) / stretch
    weight = _triangle(distance) if how == "bilinear" else _cubic(distance)
    weight = weight * ((inside >= first) & (inside < last))
    return weight / weight.sum(dim=2, keepdim=True)


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0.0)


def _cubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = −0.5, which torch and Pillow use where they antialias."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros(())))


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
    offsets = torch.arange(-half, half + 1, device=sigmas.device, dtype=torch.float32)
    kernels = torch.softmax(-0.5 * (offsets / sigmas[:, None]).square(), dim=1)
    at = torch.arange(side, device=sigmas.device)[:, None] + offsets.long()
    at = at.abs()
    at = torch.where(at >= side, 2 * (side - 1) - at, at)
    matrices = torch.zeros(len(sigmas), side, side, device=sigmas.device)
    return matrices.scatter_add_(2, at.expand(len(sigmas), -1, -1), kernels[:, None, :].expand(-1, side, -1))


def apply_separable(pixels_nchw: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Applies a matrix to the rows' axis and one to the columns' axis of each picture.

    Args:
        pixels_nchw: Contiguous, (n, c, h, w).
        rows: (n, h', h).
        columns: (n, w', w).

    Returns:
        (n, c, h', w').
    """
    n, channels, height, width = pixels_nchw.shape
    across = torch.bmm(pixels_nchw.reshape(n, channels * height, width), columns.transpose(1, 2))
    return torch.matmul(rows[:, None], across.view(n, channels, height, -1))
