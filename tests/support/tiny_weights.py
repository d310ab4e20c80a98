"""Random weights that prove something, and what is known of a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from twinlens.training.pull.source import Choices

Vectors = NDArray[np.float32]


@dataclass
class TinyModel:
    """What to pull, and what the model's own library makes of pictures and texts, not normalised."""

    source: str
    choices: Choices
    model: Any
    image: Callable[[Sequence[Image.Image]], Vectors] | None = None
    text: Callable[[Sequence[str]], Vectors] | None = None
    # Pixels as the bundle prepares them to vectors, where the library's own preprocessing works on tensors.
    pixels: Callable[[NDArray[np.float32]], Vectors] | None = None
    # Unpadded rows of ids to the vectors of rows padded to the window.
    padded: Callable[[Sequence[Sequence[int]]], Vectors] | None = None


def awaken(model: nn.Module, seed: int = 0) -> nn.Module:
    """Makes weights as large as trained ones, so that each input has a vector of its own.

    Fresh weights are so small that all inputs get nearly the same vector, and then agreement proves nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if not weights.is_floating_point() or name.startswith("logit_"):
                continue
            if weights.ndim >= 2 and "pos" not in name:
                fan = weights[0].numel()
                weights.copy_(torch.randn(weights.shape, generator=generator) * 1.6 / fan**0.5)
            elif weights.ndim == 1:
                weights.add_(0.2 * torch.randn(weights.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
    return model.eval()
