"""The contrastive loss of MoCo v3: one direction, the keys of the batch as negatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def batch_info_nce(q_nd: Tensor, k_md: Tensor, temperature: float, *, first: int = 0) -> Tensor:
    """The term ctr(q, k) of MoCo v3 (Chen, Xie & He 2021, eq. 1 and algorithm 1), scaled by 2τ.

    With the cosine as product:

        l_i = -2τ · log( exp(q_i·k_i / τ) / Σ_j exp(q_i·k_j / τ) )

    The sum runs over all keys, the positive included. The factor makes the size of the gradients, and with it the
    learning rate, depend less on τ. The method's loss is ctr(q_1, k_2) + ctr(q_2, k_1).

    Args:
        q_nd: Queries (after the predictor) of one view, shape (n, d); normalised inside.
        k_md: Keys of the other view, shape (m, d), m ≥ n: where several ranks share the batch, those of all ranks;
            normalised inside, and constant in MoCo v3.
        temperature: τ > 0; 0.2 for ViTs, 1 for ResNets in the authors' runs.
        first: Which key belongs to the first query; key `first + i` is the positive of query i.

    Returns:
        Mean over the queries, a scalar; computed and returned in fp32 at least.

    Raises:
        ValueError: if shapes do not fit, there is a single key, or the temperature is not positive.
    """
    n = len(q_nd)
    if q_nd.ndim != 2 or k_md.ndim != 2 or q_nd.shape[1] != k_md.shape[1]:
        raise ValueError(f"queries {tuple(q_nd.shape)} and keys {tuple(k_md.shape)} must be (n, d) and (m, d)")
    if not 0 <= first <= len(k_md) - n:
        raise ValueError(f"{n} queries from key {first} on do not fit {len(k_md)} keys")
    if len(k_md) < 2:
        raise ValueError("a batch of one has no negatives: the loss is 0 and teaches nothing")
    if temperature <= 0:
        raise ValueError(f"the temperature must be positive, found {temperature}")
    precision = torch.promote_types(q_nd.dtype, torch.float32)
    with torch.autocast(q_nd.device.type, enabled=False):
        q, k = (F.normalize(each.to(precision), dim=1) for each in (q_nd, k_md))
        target = torch.arange(first, first + n, device=q.device)
        return 2.0 * temperature * F.cross_entropy(q @ k.T / temperature, target)
