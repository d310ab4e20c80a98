"""The loss of SimSiam."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def negative_cosine(p_nd: Tensor, z_nd: Tensor) -> Tensor:
    """D(p, z) = -cos(p, z) (SimSiam, Chen & He 2021, eq. 1), for one direction.

    The method's loss is ½ D(p_1, z_2) + ½ D(p_2, z_1) (eq. 2). Gradients flow into both arguments: the caller detaches
    z (eq. 3), without which the encoder collapses.

    Args:
        p_nd: The predictor's outputs for one view, shape (n, d); normalised inside.
        z_nd: Projections of the other view, shape (n, d); normalised inside.

    Returns:
        Mean over the batch, a scalar within -1 to 1; computed and returned in fp32 at least.

    Raises:
        ValueError: if shapes differ.
    """
    if p_nd.ndim != 2 or p_nd.shape != z_nd.shape:
        raise ValueError(f"predictions {tuple(p_nd.shape)} and projections {tuple(z_nd.shape)} must both be (n, d)")
    precision = torch.promote_types(p_nd.dtype, torch.float32)
    with torch.autocast(p_nd.device.type, enabled=False):
        p, z = (F.normalize(each.to(precision), dim=1) for each in (p_nd, z_nd))
        return -(p * z).sum(dim=1).mean()
