"""What losses that decorrelate dimensions share: deviations from the mean of a batch, and what is off a diagonal."""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.modules.gather import sum_over_ranks


def centred(z_nd: Tensor, count: int) -> Tensor:
    """Embeddings less their mean over the pictures of all ranks.

    Args:
        z_nd: This rank's, shape (n, d).
        count: Pictures of all ranks together.
    """
    return z_nd - sum_over_ranks(z_nd.sum(dim=0)) / count


def off_diagonal_squares(matrix_dd: Tensor) -> Tensor:
    """Σ_i Σ_{j ≠ i} M_ij², a scalar."""
    off_diagonal = ~torch.eye(len(matrix_dd), dtype=torch.bool, device=matrix_dd.device)
    return matrix_dd.where(off_diagonal, 0.0).square().sum()
