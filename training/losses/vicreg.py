"""VICReg: views alike, every dimension alive, no two dimensions alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from twinlens.training.losses.decorrelation import centred, off_diagonal_squares
from twinlens.training.modules.gather import sum_over_ranks, world_size


@dataclass(frozen=True)
class VICRegTerms:
    """The loss and its three terms, scalars.

    Attributes:
        loss: λ invariance + μ variance + ν covariance.
        invariance: Mean squared difference of the views, over pictures and dimensions.
        variance: Mean over views and dimensions of max(0, 1 - sqrt(Var + ε)).
        covariance: Sum over the views of Σ_i Σ_{j ≠ i} Cov_ij² / d.
    """

    loss: Tensor
    invariance: Tensor
    variance: Tensor
    covariance: Tensor


def vicreg(
    z_a: Tensor,
    z_b: Tensor,
    *,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
    epsilon: float = 1e-4,
) -> VICRegTerms:
    """Variance, invariance and covariance regularisation (Bardes et al. 2022, eq. 1 to 6), as the authors' code has it.

    Variances and covariances are the unbiased ones. The code, whose weights these are, differs from the paper's
    equations in two factors: invariance is divided by d as well as by n (eq. 5 sums over dimensions), and variance is
    the mean of the two views (eq. 6 adds them). Over several ranks all three terms are those of the batch of all of
    them.

    Args:
        z_a: Embeddings of the first views, shape (n, d), not normalised.
        z_b: Those of the second views of the same pictures.
        invariance_weight: λ.
        variance_weight: μ.
        covariance_weight: ν.
        epsilon: ε, added to the variance under its root.

    Returns:
        The terms, in fp32 at least.

    Raises:
        ValueError: if shapes differ, or n < 2.
    """
    if z_a.ndim != 2 or z_a.shape != z_b.shape:
        raise ValueError(f"embeddings must be (n, d) alike, found {tuple(z_a.shape)} and {tuple(z_b.shape)}")
    if z_a.shape[0] < 2:
        raise ValueError("a batch of one has no variance")
    precise = torch.promote_types(z_a.dtype, torch.float32)
    a, b = z_a.to(precise), z_b.to(precise)
    n = world_size() * a.shape[0]
    invariance = sum_over_ranks((a - b).square().sum()) / (n * a.shape[1])
    a, b = centred(a, n), centred(b, n)
    variance = 0.5 * (_variance(a, n, epsilon) + _variance(b, n, epsilon))
    covariance = _covariance(a, n) + _covariance(b, n)
    loss = invariance_weight * invariance + variance_weight * variance + covariance_weight * covariance
    return VICRegTerms(loss, invariance, variance, covariance)


def _variance(deviations: Tensor, n: int, epsilon: float) -> Tensor:
    variance = sum_over_ranks(deviations.square().sum(dim=0)) / (n - 1)
    return torch.relu(1.0 - (variance + epsilon).sqrt()).mean()


def _covariance(deviations: Tensor, n: int) -> Tensor:
    covariances = sum_over_ranks(deviations.T @ deviations) / (n - 1)
    return off_diagonal_squares(covariances) / len(covariances)
