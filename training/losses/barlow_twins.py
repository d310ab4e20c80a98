"""Barlow Twins: the cross-correlation of two views' embeddings should be the identity."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from twinlens.training.losses.decorrelation import centred, off_diagonal_squares
from twinlens.training.modules.gather import sum_over_ranks, world_size


@dataclass(frozen=True)
class BarlowTwinsTerms:
    """The loss and its two terms, scalars.

    Attributes:
        loss: invariance + λ redundancy.
        invariance: Σ_i (1 - C_ii)².
        redundancy: Σ_i Σ_{j ≠ i} C_ij².
    """

    loss: Tensor
    invariance: Tensor
    redundancy: Tensor


def barlow_twins(
    z_a: Tensor, z_b: Tensor, *, redundancy_weight: float = 0.0051, epsilon: float = 1e-5
) -> BarlowTwinsTerms:
    """Redundancy reduction (Zbontar et al. 2021, eq. 1 and 2).

    C_ij = Σ_b â_bi b̂_bj / n, where â and b̂ have mean 0 and variance 1 over the batch in every dimension. Over several
    ranks the statistics and C are those of the batch of all of them.

    Args:
        z_a: Embeddings of the first views, shape (n, d); standardised inside.
        z_b: Those of the second views of the same pictures.
        redundancy_weight: λ of the paper.
        epsilon: Added to the variances, as batch normalisation does in the authors' code; without it a dimension that
            is constant has no finite gradient.

    Returns:
        The terms, in fp32 at least.

    Raises:
        ValueError: if shapes differ, or n < 2.
    """
    if z_a.ndim != 2 or z_a.shape != z_b.shape:
        raise ValueError(f"embeddings must be (n, d) alike, found {tuple(z_a.shape)} and {tuple(z_b.shape)}")
    if z_a.shape[0] < 2:
        raise ValueError("a batch of one has no correlations")
    n = world_size() * z_a.shape[0]
    a, b = _standardised(z_a, n, epsilon), _standardised(z_b, n, epsilon)
    correlations = sum_over_ranks(a.T @ b) / n
    invariance = (1.0 - correlations.diagonal()).square().sum()
    redundancy = off_diagonal_squares(correlations)
    return BarlowTwinsTerms(invariance + redundancy_weight * redundancy, invariance, redundancy)


def _standardised(z: Tensor, n: int, epsilon: float) -> Tensor:
    z = centred(z.to(torch.promote_types(z.dtype, torch.float32)), n)
    variance = sum_over_ranks(z.square().sum(dim=0)) / n
    return z * (variance + epsilon).rsqrt()
