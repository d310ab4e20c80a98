"""Two towers with one learned temperature, around a model of open_clip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twinlens.training.modules.causal_text import causal_text_by_length, causal_tower
from twinlens.training.modules.short_attention import short_attention

# CLIP, Radford et al. 2021, §2.5: the logits are never scaled by more than 100.
MAX_LOG_SCALE = math.log(100.0)


class DualEncoder(nn.Module):
    """Takes decoded pictures and token ids, gives unit vectors.

    Normalising pixels happens here, on the device, so that batches travel as bytes.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        """Wraps `model` (see `checkpoint.build_model`); its weights stay the same objects, in channels-last memory.

        Args:
            model: With `encode_image`, `encode_text` and `logit_scale`.
            mean: Of the channels, on the scale 0 to 1.
            std: Likewise.
        """
        super().__init__()
        # Half as long again do convolutions take otherwise, on CPUs; elsewhere it costs nothing.
        self.model = model.to(memory_format=torch.channels_last)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    @property
    def _open_clip(self) -> Any:
        return self.model  # open_clip ships no types

    def images(self, pixels_nhwc: Tensor) -> Tensor:
        """Unit vectors, float32, shape (n, d).

        Args:
            pixels_nhwc: Shape (n, size, size, 3): uint8, or float32 that is normalised already (augmented pictures). Or
                `image_features`, shape (n, k).
        """
        features = pixels_nhwc if pixels_nhwc.ndim == 2 else self.image_features(pixels_nhwc)
        head = getattr(self._open_clip.visual, "of_features", None)
        return F.normalize((features if head is None else head(features)).float(), dim=-1)

    def image_features(self, pixels_nhwc: Tensor) -> Tensor:
        """What does not change where the image tower is locked, shape (n, k).

        These are the features below an open `residual` where the tower tells them (`features` and `of_features`), else
        its embeddings.

        Args:
            pixels_nhwc: Shape (n, size, size, 3); see `images`.
        """
        pixels = pixels_nhwc.permute(0, 3, 1, 2)
        if not pixels.is_floating_point():
            pixels = (pixels.to(self.mean) / 255.0 - self.mean) / self.std
        visual = self._open_clip.visual
        # Here and not around a step: a chunk must be encoded twice in the same way.
        with _image_attention(visual, pixels.device):
            encode = visual.features if hasattr(visual, "of_features") else self._open_clip.encode_image
            features: Tensor = encode(pixels)
        return features

    def texts(self, token_ids_nl: Tensor) -> Tensor:
        """Unit vectors, float32, shape (n, d).

        Args:
            token_ids_nl: Padded ids of shape (n, length), or `text_features`.
        """
        features = token_ids_nl if token_ids_nl.is_floating_point() else self.text_features(token_ids_nl)
        return F.normalize(features.float(), dim=-1)

    def text_features(self, token_ids_nl: Tensor) -> Tensor:
        """Embeddings, shape (n, d), of padded ids of shape (n, length), not normalised.

        Padding is not computed where it changes nothing: captions are short, windows are 77 tokens.
        """
        found = causal_tower(self.model)
        if found is None:
            with short_attention(token_ids_nl.device, token_ids_nl.shape[1]):
                features: Tensor = self._open_clip.encode_text(token_ids_nl)
            return features
        tower, end = found
        return causal_text_by_length(tower, token_ids_nl, end)

    def scale(self) -> Tensor:
        """The factor on cosines, a scalar."""
        log_scale: Tensor = self._open_clip.logit_scale
        return log_scale.float().exp().reshape(())

    def bias(self) -> Tensor | None:
        """What is added to scaled cosines (SigLIP, Zhai et al. 2023), a scalar; None where the model has none."""
        bias: Tensor | None = self._open_clip.logit_bias
        return None if bias is None else bias.float().reshape(())

    @torch.no_grad()
    def clamp_scale(self) -> None:
        """Keeps the learned temperature in CLIP's bounds; to be called after each step of the optimiser.

        SigLIP has none above: its loss has a bias against large scales, and published models have 117.
        """
        self._open_clip.logit_scale.clamp_(0.0, MAX_LOG_SCALE if self.bias() is None else None)


def _image_attention(tower: Any, device: torch.device) -> AbstractContextManager[None]:
    """See `short_attention`; nothing where no tokens attend to each other, or the tower sees to it itself."""
    positions = getattr(tower, "positional_embedding", None)  # open_clip's ViTs
    if positions is None:
        positions = getattr(getattr(tower, "trunk", None), "pos_embed", None)  # timm's
    return short_attention(device, positions.shape[-2]) if isinstance(positions, Tensor) else nullcontext()
