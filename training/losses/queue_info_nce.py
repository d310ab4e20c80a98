"""The contrastive loss of MoCo: one positive key against a queue of negatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def queue_info_nce(q_nd: Tensor, k_nd: Tensor, queue_kd: Tensor, temperature: float) -> Tensor:
    """InfoNCE with a dictionary of K keys (MoCo, He et al. 2020, eq. 1).

    With the cosine as product:

        l_i = -log( exp(q_i·k_i / τ) / ( exp(q_i·k_i / τ) + Σ_j exp(q_i·queue_j / τ) ) )

    The sum has K + 1 terms: the positive and every key of the queue; other keys of the batch are no negatives. A loss
    of log(K + 1) is chance.

    Args:
        q_nd: Queries, shape (n, d); normalised inside.
        k_nd: The positive key of each query, shape (n, d); normalised inside, and constant in MoCo.
        queue_kd: Negatives, unit vectors of shape (K, d).
        temperature: τ > 0; 0.07 in MoCo, 0.2 in MoCo v2.

    Returns:
        Mean over the queries, a scalar; computed and returned in fp32 at least.

    Raises:
        ValueError: if shapes do not fit, the queue is empty, or the temperature is not positive.
    """
    if q_nd.ndim != 2 or q_nd.shape != k_nd.shape:
        raise ValueError(f"queries {tuple(q_nd.shape)} and keys {tuple(k_nd.shape)} must both be (n, d)")
    if queue_kd.ndim != 2 or queue_kd.shape[1] != q_nd.shape[1] or len(queue_kd) == 0:
        raise ValueError(f"the queue {tuple(queue_kd.shape)} must be (K, {q_nd.shape[1]}) with K of at least 1")
    if temperature <= 0:
        raise ValueError(f"the temperature must be positive, found {temperature}")
    precision = torch.promote_types(q_nd.dtype, torch.float32)
    with torch.autocast(q_nd.device.type, enabled=False):
        q, k = (F.normalize(each.to(precision), dim=1) for each in (q_nd, k_nd))
        positive = (q * k).sum(dim=1, keepdim=True)
        logits = torch.cat([positive, q @ queue_kd.to(precision).T], dim=1) / temperature
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.int64, device=q.device))
