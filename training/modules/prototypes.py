"""Prototypes: unit vectors that pictures are assigned to (SwAV)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prototypes(nn.Module):
    """k learned directions; gives the cosine of an embedding with each (Caron et al. 2020, section 3.1).

    Attributes:
        weight: The prototypes, shape (k, d), of unit length after `normalise`.
    """

    def __init__(self, dim: int, count: int) -> None:
        """Draws the prototypes as a linear layer's rows are drawn.

        Args:
            dim: d, of the embeddings.
            count: k; more than there are clusters in the data (the paper's 3000 is three times ImageNet's classes).
        """
        super().__init__()
        self.weight = nn.Parameter(nn.Linear(dim, count, bias=False).weight.detach())
        self.normalise()

    def forward(self, embeddings_nd: Tensor) -> Tensor:
        """Scores of unit embeddings (n, d), shape (n, k)."""
        return F.linear(embeddings_nd, self.weight)

    @torch.no_grad()
    def normalise(self) -> None:
        """Back to unit length; at each step, before the prototypes are used."""
        self.weight.copy_(F.normalize(self.weight, dim=1))
