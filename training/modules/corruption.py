"""Noise that a denoising autoencoder has to undo."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Noise = Literal["none", "gaussian", "masking"]


def corrupted(pixels: Tensor, noise: Noise, level: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Spoils normalised pixels (Vincent et al. 2010, §3.3; masking also Vincent et al. 2008).

    Args:
        pixels: Any shape with channels in the second dimension.
        noise: `gaussian` adds N(0, level²) to each value; `masking` sets a share `level` of the places, all channels
            of each, to 0, the mean colour; `none` gives the pixels themselves.
        level: Standard deviation in normalised units, or share.
        generator: Of the pixels' device; None: torch's own.

    Returns:
        The same shape; the input is not changed.
    """
    match noise:
        case "none":
            return pixels
        case "gaussian":
            drawn = torch.randn(pixels.shape, device=pixels.device, dtype=pixels.dtype, generator=generator)
            return pixels + level * drawn
        case "masking":
            places = (len(pixels), 1, *pixels.shape[2:])
            return pixels * (torch.rand(places, device=pixels.device, generator=generator) >= level)
