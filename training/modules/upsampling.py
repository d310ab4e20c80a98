"""From a coarse map of features to a finer map of predictions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UpsamplingDecoder(nn.Module):
    """Doubles the side of a map, with a convolution each time, until it is as fine as what is predicted."""

    def __init__(self, *, channels_in: int, side_in: int, width: int, channels_out: int, side_out: int) -> None:
        """Builds it with fresh weights.

        Args:
            channels_in: Of the features.
            side_in: Of their map.
            width: Channels after the first convolution; halved with each doubling, not below 32.
            channels_out: Of the predictions.
            side_out: Of their map.
        """
        super().__init__()
        self.side_out = side_out
        layers: list[nn.Module] = _block(channels_in, width)
        side, channels = side_in, width
        while side < side_out:
            narrower = max(min(32, width), channels // 2)
            # Nearest neighbours and a convolution: a transposed convolution leaves a checkerboard.
            layers += [nn.Upsample(scale_factor=2), *_block(channels, narrower)]
            side, channels = 2 * side, narrower
        self.layers = nn.Sequential(*layers)
        self.predict = nn.Conv2d(channels, channels_out, 1)

    def forward(self, features_nchw: Tensor) -> Tensor:
        """Predicts from features of shape (n, channels_in, side_in, side_in): (n, channels_out, side_out, side_out)."""
        maps: Tensor = self.layers(features_nchw)
        if maps.shape[-1] != self.side_out:
            # In float32 at least: on the CPU there is no such resampling of bfloat16.
            maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
            maps = F.interpolate(maps, size=(self.side_out, self.side_out), mode="bilinear", antialias=True)
        predicted: Tensor = self.predict(maps)
        return predicted


def _block(channels_in: int, channels_out: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]
