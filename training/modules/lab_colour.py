"""From sRGB to CIE L*a*b*, in which colourisation sees light and predicts colour."""

from __future__ import annotations

import torch
from torch import Tensor

# IEC 61966-2-1: linear sRGB to CIE XYZ, white point D65 (2° observer) as the sum of each row.
_XYZ_OF_RGB = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
_WHITE = (0.95047, 1.0, 1.08883)
_DELTA = 6 / 29


def lab_of(rgb_nchw: Tensor) -> Tensor:
    """CIE L*a*b* (CIE 15, D65) of sRGB pixels.

    Args:
        rgb_nchw: sRGB on the scale 0 to 1, shape (n, 3, h, w).

    Returns:
        L* (0 to 100), a* and b* (about −110 to 110), the same shape.
    """
    matrix = torch.tensor(_XYZ_OF_RGB, dtype=rgb_nchw.dtype, device=rgb_nchw.device)
    white = torch.tensor(_WHITE, dtype=rgb_nchw.dtype, device=rgb_nchw.device)
    xyz = torch.einsum("kc,nchw->nkhw", matrix / white[:, None], _linear(rgb_nchw))
    f = torch.where(xyz > _DELTA**3, xyz.clamp_min(_DELTA**3) ** (1 / 3), xyz / (3 * _DELTA**2) + 4 / 29)
    x, y, z = f.unbind(dim=1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=1)


def grey_of_lightness(lightness: Tensor) -> Tensor:
    """The sRGB value, 0 to 1, of the grey that has this L*: how a network for pictures is shown lightness alone."""
    f = (lightness + 16) / 116
    luminance = torch.where(f > _DELTA, f**3, 3 * _DELTA**2 * (f - 4 / 29))
    return torch.where(
        luminance <= 0.0031308, 12.92 * luminance, 1.055 * luminance.clamp_min(0.0031308) ** (1 / 2.4) - 0.055
    )


def _linear(encoded: Tensor) -> Tensor:
    return torch.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
