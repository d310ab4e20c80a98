"""The loss of colourisation: a classification of every pixel's colour in which rare colours count more."""

from __future__ import annotations

import torch
from torch import Tensor


def rebalanced_cross_entropy(logits_nqhw: Tensor, bins_nhwk: Tensor, shares_nhwk: Tensor, weights_q: Tensor) -> Tensor:
    """Multinomial cross-entropy against soft colours, rebalanced (Zhang et al. 2016, eq. 2).

        L = − 1/(n h w) Σ_{n,h,w} v(Z_nhw) Σ_q Z_nhwq log Ẑ_nhwq,     v(Z) = w_{q*},  q* = argmax_q Z_q

    The soft target Z of a pixel is zero but at k bins, so only these are given. The paper sums over pixels; the mean
    only scales the learning rate, and is the same for all sizes of picture.

    Args:
        logits_nqhw: Scores of the q colour bins, shape (n, q, h, w); Ẑ is their softmax.
        bins_nhwk: int64, shape (n, h, w, k): the bins that share a pixel's colour (see `AbBins.soft`).
        shares_nhwk: Their shares Z, summing to 1 over k.
        weights_q: w, shape (q,), each positive (see `ColourPrior.weights`).

    Returns:
        The loss, a float32 scalar (float64 for float64 logits).

    Raises:
        ValueError: if shapes do not fit.
    """
    n, q, h, w = logits_nqhw.shape
    if bins_nhwk.shape[:3] != (n, h, w) or bins_nhwk.shape != shares_nhwk.shape or weights_q.shape != (q,):
        raise ValueError(
            f"logits {tuple(logits_nqhw.shape)} do not fit bins {tuple(bins_nhwk.shape)}, "
            f"shares {tuple(shares_nhwk.shape)} and weights {tuple(weights_q.shape)}"
        )
    logits = logits_nqhw if logits_nqhw.dtype.itemsize >= 4 else logits_nqhw.float()
    log_likelihood = logits.log_softmax(dim=1).gather(1, bins_nhwk.permute(0, 3, 1, 2))
    shares = shares_nhwk.to(logits.dtype).permute(0, 3, 1, 2)
    likeliest = bins_nhwk.gather(-1, shares_nhwk.argmax(dim=-1, keepdim=True)).squeeze(-1)
    weight_nhw = weights_q.to(logits.dtype)[likeliest]
    return -torch.mean(weight_nhw * (shares * log_likelihood).sum(dim=1))
