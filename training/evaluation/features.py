"""Embeds whole sets of pictures with a backbone as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.errors import TrainingRoomError
from twinlens.training.modules.evaluation_mode import evaluation_mode


class FeaturesError(TrainingRoomError):
    """The features of an encoder cannot be measured. The message is one line."""


def embed_pictures(
    backbone: nn.Module,
    pixels_nhwc: NDArray[np.uint8],
    preprocess: PreprocessSpec,
    *,
    batch_size: int = 256,
) -> Tensor:
    """Features of every picture, without gradients, in evaluation mode and full precision.

    The backbone is left as it was: its modes, its running statistics and the state of the generators.

    Args:
        backbone: Normalised pixels (n, 3, size, size) to (n, d).
        pixels_nhwc: uint8, shape (m, side, side, 3), m ≥ 1; resized as in serving where `side` is not the size of the
            preprocessing.
        preprocess: Size, mean and standard deviation.
        batch_size: Pictures at a time.

    Returns:
        float32 on the CPU, shape (m, d), not normalised.

    Raises:
        FeaturesError: if a feature is not finite.
    """
    device = _device_of(backbone)
    parts = []
    with as_evaluated(backbone):
        for start in range(0, len(pixels_nhwc), batch_size):
            chunk = torch.from_numpy(np.ascontiguousarray(pixels_nhwc[start : start + batch_size])).to(device)
            parts.append(backbone(normalised(chunk, preprocess)).float().cpu())
    features = torch.cat(parts)
    if not torch.isfinite(features).all():
        raise FeaturesError(
            "the encoder gives features that are not finite: train with a lower learning_rate or in fp32"
        )
    return features


def normalised(pixels_nhwc: Tensor, preprocess: PreprocessSpec) -> Tensor:
    """uint8 pixels (n, side, side, 3) as the backbone takes them: float32 (n, 3, size, size), channels last."""
    pixels = pixels_nhwc.permute(0, 3, 1, 2).float()
    size = preprocess.size
    if pixels.shape[-1] != size:
        how = preprocess.interpolation
        pixels = F.interpolate(pixels, (size, size), mode=how, antialias=True, align_corners=False).clamp(0, 255)
    mean = torch.tensor(preprocess.mean, device=pixels.device).view(3, 1, 1) * 255
    std = torch.tensor(preprocess.std, device=pixels.device).view(3, 1, 1) * 255
    return ((pixels - mean) / std).contiguous(memory_format=torch.channels_last)


@contextmanager
def as_evaluated(module: nn.Module) -> Iterator[None]:
    """Inside, the module is in evaluation mode, without gradients and autocast; each part's own mode comes back."""
    with evaluation_mode(module), torch.no_grad(), torch.autocast(_device_of(module).type, enabled=False):
        yield


def _device_of(module: nn.Module) -> torch.device:
    first: Any = next(module.parameters(), None)
    return torch.device("cpu") if first is None else first.device
