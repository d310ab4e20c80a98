"""Colour operations on whole batches, each picture with its own factor; float pictures on the scale 0 to 1.

Every function is torchvision v2's functional of the same name for float pictures, only that each picture has its own
factor. All work on pictures of shape (n, h, 3, w): see `resampling` for why.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LUMA = (0.2989, 0.587, 0.114)


def luma(pixels_nhcw: Tensor) -> Tensor:
    """Brightness of each pixel (ITU-R BT.601, with torchvision's digits), (n, h, 1, w)."""
    red, green, blue = pixels_nhcw.unbind(2)
    return red.mul(_LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2]).unsqueeze(2)


def adjust_brightness(pixels_nhcw: Tensor, factors: Tensor) -> Tensor:
    """Times the factor, (n,)."""
    return (pixels_nhcw * _wide(factors)).clamp_(0, 1)


def adjust_contrast(pixels_nhcw: Tensor, factors: Tensor) -> Tensor:
    """Away from, or towards, the picture's mean brightness."""
    # The mean of a weighted sum is the weighted sum of the means.
    mean = luma(pixels_nhcw.mean(dim=(1, 3))[:, None, :, None])[:, 0, 0, 0]
    return (pixels_nhcw * _wide(factors)).add_(_wide(mean * (1 - factors))).clamp_(0, 1)


def adjust_saturation(pixels_nhcw: Tensor, factors: Tensor) -> Tensor:
    """Away from, or towards, each pixel's brightness."""
    factor = _wide(factors)
    return (pixels_nhcw * factor).add_(luma(pixels_nhcw).mul_(1 - factor)).clamp_(0, 1)


def adjust_hue(pixels_nhcw: Tensor, turns: Tensor) -> Tensor:
    """Turns the hue on the HSV cone by a share of the circle, (n,), in [−0.5, 0.5].

    Branches are slow in tensor code, so both ways between RGB and HSV are written without any. With v the largest
    channel's lead over red and s = green − blue, both in units of the chroma, the hue in sixths of the circle is
    ±(|s| + v + 2v(1 − |s|)) with the sign of s: each of the six sectors has v = 0, v = 1 or |s| = 1, which gives the
    usual line. Back, a channel is the smallest plus the chroma times clamp(…) of the distance from its own hue.
    """
    red, green, blue = pixels_nhcw.unbind(2)
    top = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = top - low
    per_chroma = (chroma + torch.finfo(chroma.dtype).tiny).reciprocal_()
    s = (green - blue).mul_(per_chroma)
    v = (top - red).mul_(per_chroma)
    a = s.abs()
    sixths = torch.copysign((3 - 2 * a).mul_(v).add_(a), s).add_(6 * turns[:, None, None])
    sixths.sub_((sixths / 6).floor_(), alpha=6)
    out = torch.empty_like(pixels_nhcw)
    torch.sub(sixths, 3, out=out[:, :, 0]).abs_().sub_(1)
    torch.sub(sixths, 2, out=out[:, :, 1]).abs_().neg_().add_(2)
    torch.sub(sixths, 4, out=out[:, :, 2]).abs_().neg_().add_(2)
    return out.clamp_(0, 1).mul_(chroma[:, :, None]).add_(low[:, :, None])


def solarize(pixels: Tensor, threshold: float) -> Tensor:
    """Inverts what reaches the threshold."""
    return torch.where(pixels >= threshold, 1 - pixels, pixels)


def _wide(per_picture: Tensor) -> Tensor:
    return per_picture[:, None, None, None]
