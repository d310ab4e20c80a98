"""Two towers with one learned temperature, around a model of open_clip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# CLIP, Radford et al. 2021, §2.5: the logits are never scaled by more than 100.
MAX_LOG_SCALE = math.log(100.0)


class DualEncoder(nn.Module):
    """Takes decoded pictures and token ids, gives unit vectors.

    Normalising pixels happens here, on the device, so that batches travel as bytes.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        """Wraps `model` (see `checkpoint.build_model`); its weights stay where they are.

        Args:
            model: With `encode_image`, `encode_text` and `logit_scale`.
            mean: Of the channels, on the scale 0 to 1.
            std: Likewise.
        """
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    @property
    def _open_clip(self) -> Any:
        return self.model  # open_clip ships no types

    def images(self, pixels_nhwc: Tensor) -> Tensor:
        """Unit vectors, float32, shape (n, d), of uint8 pixels of shape (n, size, size, 3)."""
        pixels = pixels_nhwc.permute(0, 3, 1, 2).to(self.mean) / 255.0
        features: Tensor = self._open_clip.encode_image((pixels - self.mean) / self.std)
        return F.normalize(features.float(), dim=-1)

    def texts(self, token_ids_nl: Tensor) -> Tensor:
        """Unit vectors, float32, shape (n, d), of padded ids of shape (n, length)."""
        features: Tensor = self._open_clip.encode_text(token_ids_nl)
        return F.normalize(features.float(), dim=-1)

    def scale(self) -> Tensor:
        """The factor on cosines, at most 100, a scalar."""
        log_scale: Tensor = self._open_clip.logit_scale
        return log_scale.float().exp().reshape(())

    def bias(self) -> Tensor | None:
        """What is added to scaled cosines (SigLIP, Zhai et al. 2023), a scalar; None where the model has none."""
        bias: Tensor | None = self._open_clip.logit_bias
        return None if bias is None else bias.float().reshape(())

    @torch.no_grad()
    def clamp_scale(self) -> None:
        """Keeps the learned temperature in CLIP's bounds; to be called after each step of the optimiser."""
        self._open_clip.logit_scale.clamp_(0.0, MAX_LOG_SCALE)
