"""Sinkhorn-Knopp: soft assignments that use all prototypes alike."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from twinlens.training.modules.gather import sum_over_ranks, world_size


@torch.no_grad()
def sinkhorn(scores_nk: Tensor, *, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Codes of a batch under equal use of the prototypes (SwAV, Caron et al. 2020, eq. 3 to 5; Cuturi 2013).

    The Q that maximises Tr(Qᵀ S) + ε H(Q) over the matrices whose every row (a picture) has the sum 1 and whose every
    column (a prototype) has the sum n / k. It has the form diag(u) exp(S / ε) diag(v); an iteration normalises first
    the columns, then the rows, as the authors' code does, so that rows have exactly the sum 1 after any number of
    iterations, and columns have theirs in the limit.

    Everything is computed on logarithms in fp32 (float64 stays float64): exp(S / 0.05) leaves the range of fp16 at a
    score of 0.56 and that of fp32 at 4.5. Over several ranks, n counts the pictures of all of them.

    Args:
        scores_nk: S, cosines of pictures and prototypes, shape (n, k); any floating type, need not be normalised.
        epsilon: ε > 0, how soft the codes are.
        iterations: At least 1; the paper uses 3.

    Returns:
        Codes of this rank's pictures, shape (n, k), without gradients.

    Raises:
        ValueError: if the scores are no matrix with rows, ε is not positive, or there is no iteration.
    """
    if scores_nk.ndim != 2 or 0 in scores_nk.shape:
        raise ValueError(f"scores must be (pictures, prototypes), found {tuple(scores_nk.shape)}")
    if epsilon <= 0 or iterations < 1:
        raise ValueError(f"epsilon ({epsilon}) must be positive and iterations ({iterations}) at least 1")
    scores = scores_nk.to(torch.promote_types(scores_nk.dtype, torch.float32))
    # The first normalisation of the columns undoes any shift of a column. This one is exact for the scores that matter,
    # those near the largest, and keeps their digits when ε makes the numbers large.
    scores = (scores - _max_over_ranks(scores.amax(dim=0, keepdim=True))) / epsilon
    log_u = torch.zeros_like(scores[:, :1])
    log_v = torch.zeros_like(scores[:1])
    for _ in range(iterations):
        log_v = -_log_sum_exp_over_pictures(scores + log_u)
        log_u = -torch.logsumexp(scores + log_v, dim=1, keepdim=True)
    # exp(scores + log_u + log_v), with the rows' sums exact to the last digit.
    return torch.softmax(scores + log_v, dim=1)


def _log_sum_exp_over_pictures(log_q_nk: Tensor) -> Tensor:
    largest = _max_over_ranks(log_q_nk.amax(dim=0, keepdim=True))
    return largest + sum_over_ranks((log_q_nk - largest).exp().sum(dim=0, keepdim=True)).log()


def _max_over_ranks(own: Tensor) -> Tensor:
    if world_size() == 1:
        return own
    largest = own.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest
