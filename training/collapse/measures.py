"""How far embeddings are from having collapsed: spread, effective rank, alignment, uniformity."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def std_per_dimension(embeddings_nd: Tensor) -> Tensor:
    """Standard deviation of each dimension of the normalised embeddings (SimSiam, Chen & He 2021, section 4.1, fig. 2).

    Zero everywhere when all embeddings point the same way; 1/√d each when they are spread evenly over the sphere.

    Args:
        embeddings_nd: Shape (n, d), of any norm.

    Returns:
        Shape (d,), float32 or wider; over n, not n - 1.

    Raises:
        ValueError: if the shape is not (n, d) with n ≥ 2.
    """
    return _unit(embeddings_nd).std(dim=0, correction=0)


def spread(embeddings_nd: Tensor) -> Tensor:
    """√d times the root mean square of `std_per_dimension`: 0 when all embeddings are equal, 1 when their mean is 0.

    Equal to √(1 - ‖mean of the unit vectors‖²), so it means the same in any number of dimensions.

    Args:
        embeddings_nd: Shape (n, d), of any norm.

    Returns:
        A scalar in [0, 1].

    Raises:
        ValueError: if the shape is not (n, d) with n ≥ 2.
    """
    return std_per_dimension(embeddings_nd).square().sum().sqrt()


def effective_rank(embeddings_nd: Tensor) -> Tensor:
    """Effective rank: e to the entropy of the singular values (Roy & Vetterli 2007, eqs. 3-5; RankMe, Garrido 2023).

    With p_k = σ_k / Σσ it is exp(-Σ p_k log p_k): k for k equal singular values, 1 for a matrix of rank one. Neither
    centred nor normalised here, as in the papers.

    Args:
        embeddings_nd: Shape (n, d).

    Returns:
        A scalar in [1, min(n, d)]; 0 for a matrix of zeros.

    Raises:
        ValueError: if the shape is not (n, d) with n ≥ 2.
    """
    wide = _wide(embeddings_nd).double()
    values: Tensor = torch.linalg.eigvalsh(_products(wide))
    # What rounding leaves of a zero would count, for the entropy is steep there.
    singular = values.where(values > max(wide.shape) * torch.finfo(values.dtype).eps * values.amax(), 0).sqrt()
    total = singular.sum()
    if total == 0:
        return total
    rank: Tensor = torch.special.entr(singular / total).sum().exp()
    return rank


def participation_ratio(embeddings_nd: Tensor) -> Tensor:
    """In how many directions the embeddings differ: (Σλ)² / Σλ² of their covariance's eigenvalues λ (Gao et al. 2017).

    Counts energy, so faint noise in the other directions does not hide a collapse onto a line, as it does from
    `effective_rank`; and it needs no decomposition.

    Args:
        embeddings_nd: Shape (n, d).

    Returns:
        A scalar in [1, min(n - 1, d)]; 0 when all embeddings are equal.

    Raises:
        ValueError: if the shape is not (n, d) with n ≥ 2.
    """
    wide = _wide(embeddings_nd).double()
    centred = wide - wide.mean(dim=0)
    products = _products(centred)
    energy = products.square().sum()
    if energy == 0:
        return energy
    return products.trace().square() / energy


def alignment(first_nd: Tensor, second_nd: Tensor, alpha: float = 2.0) -> Tensor:
    """Mean distance of two views of one picture, to the power α (Wang & Isola 2020, eq. for ℓ_align).

    Args:
        first_nd: Embeddings of the first views, shape (n, d); normalised inside.
        second_nd: Of the second views of the same pictures, shape (n, d).
        alpha: Power, 2 in the paper.

    Returns:
        A scalar in [0, 2^α]; 0 is perfect, and is also what a complete collapse gives.

    Raises:
        ValueError: if shapes differ or are not (n, d) with n ≥ 2.
    """
    if first_nd.shape != second_nd.shape:
        raise ValueError(f"views of one shape are needed, got {tuple(first_nd.shape)} and {tuple(second_nd.shape)}")
    distances: Tensor = torch.linalg.vector_norm(_unit(first_nd) - _unit(second_nd), dim=1)
    return distances.pow(alpha).mean()


def uniformity(embeddings_nd: Tensor, t: float = 2.0) -> Tensor:
    """Log of the mean Gaussian potential over pairs of pictures (Wang & Isola 2020, eq. for ℓ_uniform).

    Args:
        embeddings_nd: Shape (n, d); normalised inside.
        t: Of the potential exp(-t ‖x - y‖²), 2 in the paper.

    Returns:
        A scalar in [-4t, 0]; 0 is a complete collapse, lower is better.

    Raises:
        ValueError: if the shape is not (n, d) with n ≥ 2.
    """
    # ‖x - y‖² = 2 - 2⟨x, y⟩; in float64, for near pairs cancel.
    unit = _unit(embeddings_nd).double()
    first, second = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    squared = (2 - 2 * unit @ unit.T)[first, second].clamp(min=0)
    return (-t * squared).exp().mean().log()


def _products(matrix: Tensor) -> Tensor:
    """The smaller of M·Mᵀ and Mᵀ·M: their eigenvalues other than 0 are the same, the squares of M's singular values."""
    return matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix


def _wide(embeddings_nd: Tensor) -> Tensor:
    if embeddings_nd.ndim != 2 or embeddings_nd.shape[0] < 2 or embeddings_nd.shape[1] == 0:
        raise ValueError(
            f"embeddings of shape (n, d) with n of at least 2 are needed, got {tuple(embeddings_nd.shape)}"
        )
    return embeddings_nd if embeddings_nd.dtype == torch.float64 else embeddings_nd.float()


def _unit(embeddings_nd: Tensor) -> Tensor:
    return F.normalize(_wide(embeddings_nd), dim=1)
