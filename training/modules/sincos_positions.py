"""Fixed positions of patches: sines and cosines of rows and columns."""

from __future__ import annotations

import torch
from torch import Tensor


def sincos_positions(dim: int, rows: int, columns: int, *, prefix: int = 0) -> Tensor:
    """Two-dimensional sine-cosine positions (Vaswani et al. 2017, §3.5, for each axis; MAE, He et al. 2022, app. A.1).

    The first half of the values encodes the column x, the second the row y; a half of m values is
    sin(x · 10000^(−2i/m)) for i < m/2, followed by the cosines: the order of MAE's authors.

    Args:
        dim: Length of a position; a multiple of 4.
        rows: Of patches.
        columns: Of patches.
        prefix: Tokens without a place (class, registers) that stand in front; theirs are zero.

    Returns:
        float32, shape (prefix + rows · columns, dim), patches row by row.

    Raises:
        ValueError: if `dim` is no multiple of 4.
    """
    if dim % 4:
        raise ValueError(f"sine-cosine positions need a width that is a multiple of 4, not {dim}")
    quarter = torch.arange(dim // 4, dtype=torch.float64)
    frequencies = 10000.0 ** (-quarter / (dim / 4))
    y, x = torch.meshgrid(
        torch.arange(rows, dtype=torch.float64), torch.arange(columns, dtype=torch.float64), indexing="ij"
    )
    halves = [axis.reshape(-1, 1) * frequencies for axis in (x, y)]
    places = torch.cat([part for angle in halves for part in (angle.sin(), angle.cos())], dim=1)
    return torch.cat([torch.zeros(prefix, dim, dtype=torch.float64), places]).float()
