"""The regression loss of BYOL."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def byol_regression(prediction_nd: Tensor, target_nd: Tensor) -> Tensor:
    """The squared distance of unit vectors, 2 - 2·cos (BYOL, Grill et al. 2020, eq. 2), for one direction.

    The method's loss is the sum over both directions: each view predicts the target of the other. Gradients flow into
    both arguments: the caller detaches the target.

    Args:
        prediction_nd: The predictor's outputs for one view, shape (n, d); normalised inside.
        target_nd: The target network's projections of the other view, shape (n, d); normalised inside.

    Returns:
        Mean over the batch, a scalar within 0 to 4; computed and returned in fp32 at least.

    Raises:
        ValueError: if shapes differ.
    """
    if prediction_nd.ndim != 2 or prediction_nd.shape != target_nd.shape:
        raise ValueError(
            f"predictions {tuple(prediction_nd.shape)} and targets {tuple(target_nd.shape)} must both be (n, d)"
        )
    precision = torch.promote_types(prediction_nd.dtype, torch.float32)
    with torch.autocast(prediction_nd.device.type, enabled=False):
        prediction, target = (F.normalize(each.to(precision), dim=1) for each in (prediction_nd, target_nd))
        return 2.0 - 2.0 * (prediction * target).sum(dim=1).mean()
