"""Strided convolutions whose gradients are right also where a picture has shrunk to less than the stride."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class SmallMapConvolution(nn.Conv2d):
    """A convolution that never strides further than its input is wide.

    On the CPU in bfloat16, torch 2.14 leaves the gradients of those weights undefined that meet nothing but padding,
    when the stride is larger than the input (a ResNet's last stages on small pictures, or on the tiles of a puzzle):
    whatever lay in that memory, NaN included, becomes the weights. The output is a single place then, the same for any
    stride from the input's side on, and with a stride of just that side the gradients are right.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """As `nn.Conv2d`."""
        stride = tuple(min(step, side) for step, side in zip(self.stride, input.shape[-2:], strict=True))
        return F.conv2d(input, self.weight, self.bias, stride, self.padding, self.dilation, self.groups)


def mend_small_maps(module: nn.Module) -> None:
    """Turns every strided convolution that keeps the middle (kernel = 2 · padding + 1) into the kind above, in place.

    Weights, names and outputs stay as they are.
    """
    for layer in module.modules():
        if type(layer) is nn.Conv2d and max(layer.stride) > 1 and _keeps_the_middle(layer):
            changed: Any = layer
            changed.__class__ = SmallMapConvolution


def _keeps_the_middle(layer: nn.Conv2d) -> bool:
    return (
        not isinstance(layer.padding, str)
        and layer.padding_mode == "zeros"
        and all(
            (kernel - 1) * dilation == 2 * padding
            for kernel, dilation, padding in zip(layer.kernel_size, layer.dilation, layer.padding, strict=True)
        )
    )
