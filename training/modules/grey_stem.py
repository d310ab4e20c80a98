"""How a network that was trained on lightness alone takes coloured pictures."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from twinlens.training.modules.backbone import Backbone

# ITU-R BT.709, as in the luminance of sRGB. Taken on the encoded values it differs from the grey of the same L* by
# 0.004 of 1 on average on photos of CIFAR-10 (0.04 at the 99th percentile); on greys the two are the same.
LUMA = (0.2126, 0.7152, 0.0722)


def grey_pixels(grey_nhw: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Three equal channels of normalised grey, the input of the network that `fold_luma` folds.

    Args:
        grey_nhw: sRGB grey on the scale 0 to 1, shape (n, h, w).
        mean: Of the channels of coloured pictures, on the same scale.
        std: Likewise.

    Returns:
        Shape (n, 3, h, w), in channels-last memory: in each channel the luma of the normalised channels,
        Σ_c a_c (v − mean_c) / std_c.
    """
    scale = sum(a / s for a, s in zip(LUMA, std, strict=True))
    shift = sum(a * m / s for a, m, s in zip(LUMA, mean, std, strict=True))
    channel = grey_nhw * scale - shift
    return channel.unsqueeze(1).expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def fold_luma(backbone: Backbone) -> Backbone:
    """A copy whose first convolution takes the luma of coloured pictures itself.

    With w'_k = a_k Σ_c w_c, convolving normalised colours by w' is convolving `grey_pixels` of their luma by w; zero
    padding included, since neither side adds a constant. Nothing else of the encoder, and no preprocessing, changes.

    Raises:
        ValueError: if no convolution of three channels is found.
    """
    folded = copy.deepcopy(backbone)
    for module in folded.trunk.modules():
        if isinstance(module, nn.Conv2d) and module.in_channels == 3 and module.groups == 1:
            luma = torch.tensor(LUMA, dtype=module.weight.dtype, device=module.weight.device)
            module.weight.copy_(module.weight.sum(dim=1, keepdim=True) * luma[None, :, None, None])
            return folded
    raise ValueError("the encoder has no first convolution of three channels")
