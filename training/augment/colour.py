"""Colour operations on whole batches, each picture with its own factor; float pictures on the scale 0 to 1.

Every function is torchvision v2's functional of the same name for float pictures, only that each picture has its own
factor. All work on planar pictures (n, 3, h, w).
"""

from __future__ import annotations

import torch
from torch import Tensor

_LUMA = (0.2989, 0.587, 0.114)


def luma(pixels: Tensor) -> Tensor:
    """Brightness of each pixel (ITU-R BT.601, with torchvision's digits), (n, 1, h, w)."""
    red, green, blue = pixels.unbind(1)
    return red.mul(_LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2]).unsqueeze(1)


def adjust_brightness(pixels: Tensor, factors: Tensor) -> Tensor:
    """Times the factor, (n,)."""
    return (pixels * _wide(factors)).clamp_(0, 1)


def adjust_contrast(pixels: Tensor, factors: Tensor) -> Tensor:
    """Away from, or towards, the picture's mean brightness."""
    mean = luma(pixels).mean(dim=(1, 2, 3), keepdim=True)
    factor = _wide(factors)
    return (pixels * factor).add_(mean * (1 - factor)).clamp_(0, 1)


def adjust_saturation(pixels: Tensor, factors: Tensor) -> Tensor:
    """Away from, or towards, each pixel's brightness."""
    factor = _wide(factors)
    return (pixels * factor).add_(luma(pixels).mul_(1 - factor)).clamp_(0, 1)


def adjust_hue(pixels: Tensor, turns: Tensor) -> Tensor:
    """Turns the hue on the HSV cone by a share of the circle, (n,), in [−0.5, 0.5]."""
    red, green, blue = pixels.unbind(1)
    top = pixels.amax(1)
    chroma = top - pixels.amin(1)
    safe = chroma.where(chroma > 0, torch.ones((), device=pixels.device))
    # Hue in sixths of the circle, from whichever channel is the largest (first of equals, as in torchvision).
    sixth = torch.where(
        red == top,
        (green - blue) / safe,
        torch.where(green == top, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sixth += 6 * turns[:, None, None]
    out = torch.empty_like(pixels)
    for channel, offset in enumerate((5.0, 3.0, 1.0)):
        # HSV to RGB without branches: value − chroma · clamp(min(k, 4 − k), 0, 1), k = offset + hue (mod 6).
        k = (sixth + offset).remainder_(6)
        torch.sub(top, torch.minimum(k, 4 - k).clamp_(0, 1).mul_(chroma), out=out[:, channel])
    return out


def solarize(pixels: Tensor, threshold: float) -> Tensor:
    """Inverts what reaches the threshold."""
    return torch.where(pixels >= threshold, 1 - pixels, pixels)


def _wide(factors: Tensor) -> Tensor:
    return factors[:, None, None, None]
