"""The normalised temperature-scaled cross-entropy of SimCLR."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def nt_xent(z_a: Tensor, z_b: Tensor, temperature: float, *, anchors: slice | None = None) -> Tensor:
    """Normalised temperature-scaled cross-entropy over two views (SimCLR, Chen et al. 2020, eq. 1).

    With z the 2n projections of both views, s_ij the cosine of z_i and z_j, and p(i) the other view of i's image:

        l_i = -log( exp(s_i,p(i) / τ) / Σ_{k ≠ i} exp(s_ik / τ) )

    The sum has 2n - 1 terms; the positive is one of them. So l_i is the cross-entropy of picking the positive among all
    but i itself, and a loss of log(2n - 1) is chance.

    Args:
        z_a: Projections of the first views, shape (n, d); normalised inside.
        z_b: Projections of the second views of the same images, shape (n, d).
        temperature: τ > 0; 0.07–0.5 in the literature.
        anchors: Which of the n images are anchors; the others are negatives only. A rank that has gathered the
            projections of all ranks takes its own images: the mean over ranks is then the loss of the whole batch, and
            no rank computes what another does. None: all.

    Returns:
        Mean loss over the directed positive pairs of the anchors (2n of them where all are), a scalar; computed and
        returned in fp32 at least.

    Raises:
        ValueError: if shapes differ, n < 2, there are no anchors, or temperature is not positive.
    """
    if z_a.ndim != 2 or z_a.shape != z_b.shape:
        raise ValueError(f"the views {tuple(z_a.shape)} and {tuple(z_b.shape)} must both be (n, d)")
    n = len(z_a)
    if n < 2:
        raise ValueError("a batch of one has no negatives: the loss is 0 and teaches nothing")
    if temperature <= 0:
        raise ValueError(f"the temperature must be positive, found {temperature}")
    images = torch.arange(n, device=z_a.device)[anchors if anchors is not None else slice(None)]
    if len(images) == 0:
        raise ValueError(f"{anchors} takes none of the {n} images as an anchor")
    rows = torch.cat([images, images + n])
    # Neither half precision nor autocast: at τ = 0.07, bfloat16 would round a logit by 0.03.
    with torch.autocast(z_a.device.type, enabled=False):
        z = torch.cat([z_a, z_b])
        z = F.normalize(z.to(torch.promote_types(z.dtype, torch.float32)), dim=1)
        logits = z[rows] @ z.T / temperature
        itself = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, rows[:, None], True)
        return F.cross_entropy(logits.masked_fill(itself, float("-inf")), (rows + n) % (2 * n))
