"""Swapped prediction: the code of one view, predicted from another (SwAV)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def swapped_prediction(scores: Sequence[Tensor], codes: Sequence[Tensor], *, temperature: float = 0.1) -> Tensor:
    """Cross-entropy of every view's prediction with every other view's code (SwAV, Caron et al. 2020, eq. 1, 2 and 6).

    1/(G (V - 1)) Σ_{i ≤ G} Σ_{v ≠ i} mean over pictures of -Σ_k q_ik log softmax(s_v / τ)_k: the V views are all
    predicted from, and the first G of them (the full crops of multi-crop) have a code.

    Args:
        scores: Cosines with the prototypes, one tensor (n, k) a view, the views with codes first.
        codes: One distribution over the prototypes a picture, (n, k), for the first views; no gradient goes into them.
        temperature: τ > 0.

    Returns:
        The loss, a scalar, in fp32 at least.

    Raises:
        ValueError: if there are fewer than two views, no codes or more codes than views, shapes differ, or τ is not
            positive.
    """
    if len(scores) < 2 or not 1 <= len(codes) <= len(scores):
        raise ValueError(
            f"{len(scores)} views and {len(codes)} codes: at least two views, and codes for the first ones"
        )
    if any(each.ndim != 2 or each.shape != scores[0].shape for each in (*scores, *codes)):
        raise ValueError(f"scores and codes must be (n, k) alike, found {[tuple(s.shape) for s in (*scores, *codes)]}")
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, found {temperature}")
    precise = torch.promote_types(scores[0].dtype, torch.float32)
    log_p = [torch.log_softmax(each.to(precise) / temperature, dim=1) for each in scores]
    log_p_sum = torch.stack(log_p).sum(dim=0)
    # Linear in log p: one product with the sum over the other views stands for V - 1 of them.
    losses = [
        -(code.detach().to(precise) * (log_p_sum - own)).sum(dim=1).mean()
        for code, own in zip(codes, log_p[: len(codes)], strict=True)
    ]
    return torch.stack(losses).mean() / (len(scores) - 1)
