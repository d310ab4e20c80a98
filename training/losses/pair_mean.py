"""The mean over the pairs of a batch, wherever they lie."""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.modules.gather import mean_over_ranks

_LEAST = torch.finfo(torch.float32).tiny


def pair_mean(values_n: Tensor, weights_n: Tensor | None) -> Tensor:
    """Σ w_i v_i / Σ w_i, where the second sum runs over the pairs of all ranks and is divided by their number.

    So the mean over the ranks of what this gives is the weighted mean over the whole batch, however unlike the sums of
    weights on the ranks are.

    Args:
        values_n: One for each own pair, shape (n,).
        weights_n: Not negative, shape (n,); None: all alike. Where all are 0, the mean is 0.

    Returns:
        A scalar.
    """
    if weights_n is None:
        return values_n.mean()
    weights = weights_n.to(values_n)
    return (weights * values_n).mean() / mean_over_ranks(weights.mean()).clamp_min(_LEAST)
