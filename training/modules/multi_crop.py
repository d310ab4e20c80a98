"""Crops of several sizes through one encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor


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
