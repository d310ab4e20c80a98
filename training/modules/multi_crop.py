"""Crops of several sizes through one encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from twinlens.training.errors import ConfigError, first_line
from twinlens.training.modules.backbone import Backbone, features_of_blank


def encode_crops(encode: Callable[[Tensor], Tensor], views: Sequence[Tensor]) -> list[Tensor]:
    """Encodes each run of views of one size in one pass (SwAV, Caron et al. 2020, section 3.2).

    One pass a size is what the authors do; batch norm then takes its statistics over all crops of that size.

    Args:
        encode: Pixels (m, 3, s, s) to features (m, d), whatever s.
        views: One tensor (n, 3, s, s) a view, of one n; those of one size stand together.

    Returns:
        One tensor (n, d) a view, in the views' order.
    """
    features: list[Tensor] = []
    for _, same_size in groupby(views, key=lambda view: view.shape[-2:]):
        crops = list(same_size)
        features.extend(encode(torch.cat(crops)).chunk(len(crops)))
    return features


def check_crop_sizes(backbone: Backbone, sides: Sequence[int]) -> None:
    """Refuses small crops that the encoder does not take, such as those that a ViT cannot cut into whole patches.

    Raises:
        ConfigError: naming the size and what would do.
    """
    for side in sides:
        try:
            features_of_blank(backbone, side)
        except (RuntimeError, AssertionError, ValueError) as error:
            raise ConfigError(
                f"augment.views: {backbone.config.timm} does not take small crops of {side}x{side} pixels: "
                f"{first_line(error)}; change their size, or leave them out"
            ) from error
