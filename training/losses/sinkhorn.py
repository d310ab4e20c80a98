"""Sinkhorn-Knopp: soft assignments that use all prototypes alike."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from twinlens.training.modules.gather import sum_over_ranks, world_size

# Where all of exp(scores) is above e⁻⁶⁰, no factor of diag(u) and diag(v) can leave the range of fp32.
_LEAST_EXPONENT = -60.0


@torch.no_grad()
def sinkhorn(scores_nk: Tensor, *, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Codes of a batch under equal use of the prototypes (SwAV, Caron et al. 2020, eq. 3 to 5; Cuturi 2013).

    The Q that maximises Tr(Qᵀ S) + ε H(Q) over the matrices whose every row (a picture) has the sum 1 and whose every
    column (a prototype) has the sum n / k. It has the form diag(u) exp(S / ε) diag(v); an iteration normalises first
    the columns, then the rows, as the authors' code does, so that rows have exactly the sum 1 after any number of
    iterations, and columns have theirs in the limit.

    Computed in fp32 whatever the input and autocast (float64 stays float64), on logarithms where numbers leave its
    range: exp(S / 0.05) does so at a score of 4.5, and that of fp16 at 0.56. Over several ranks, n counts the pictures
    of all of them.

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
    with torch.autocast(scores_nk.device.type, enabled=False):
        scores = scores_nk.to(torch.promote_types(scores_nk.dtype, torch.float32))
        # The first normalisation of the columns undoes any shift of a column. This one is exact for the scores that
        # matter, those near the largest, and keeps their digits when ε makes the numbers large.
        scores = (scores - _max_over_ranks(scores.amax(dim=0))) / epsilon
        # A shift of a row is a factor of u. Every row now has a 0, and every column keeps one.
        log_u = scores.amax(dim=1)
        scores = scores - log_u[:, None]
        if float(_max_over_ranks(-scores.amin())) < -_LEAST_EXPONENT:
            return _by_factors(scores.exp(), log_u.exp(), iterations)
        return _by_logarithms(scores, log_u, iterations)


def _by_factors(kernel_nk: Tensor, u_n: Tensor, iterations: int) -> Tensor:
    """Two products of a matrix and a vector an iteration; the matrix itself is not touched."""
    v_k = torch.ones_like(kernel_nk[0])
    # The columns' sum, without which u would shrink and v grow at each iteration.
    a_column = world_size() * kernel_nk.shape[0] / kernel_nk.shape[1]
    for iteration in range(iterations):
        if iteration:
            u_n = (kernel_nk @ v_k).reciprocal()
        v_k = a_column / sum_over_ranks(u_n @ kernel_nk)
    codes = kernel_nk * v_k
    return codes / codes.sum(dim=1, keepdim=True)


def _by_logarithms(log_kernel_nk: Tensor, log_u_n: Tensor, iterations: int) -> Tensor:
    log_v_k = torch.zeros_like(log_kernel_nk[0])
    for iteration in range(iterations):
        if iteration:
            log_u_n = -torch.logsumexp(log_kernel_nk + log_v_k, dim=1)
        log_v_k = -_log_sum_exp_over_pictures(log_kernel_nk + log_u_n[:, None])
    # exp of kernel, u and v, with the rows' sums exact to the last digit.
    return torch.softmax(log_kernel_nk + log_v_k, dim=1)


def _log_sum_exp_over_pictures(log_q_nk: Tensor) -> Tensor:
    largest = _max_over_ranks(log_q_nk.amax(dim=0))
    return largest + sum_over_ranks((log_q_nk - largest).exp().sum(dim=0)).log()


def _max_over_ranks(own: Tensor) -> Tensor:
    if world_size() == 1:
        return own
    largest = own.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest
