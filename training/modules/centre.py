"""The running mean of a teacher's outputs (DINO)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from twinlens.training.modules.gather import sum_over_ranks, world_size


class Centre(nn.Module):
    """c of DINO (Caron et al. 2021, eq. 4): c ← m c + (1 - m) · mean over the batch of the teacher's outputs.

    Attributes:
        value: c, shape (k,); zeros at first, kept in checkpoints.
    """

    value: Tensor

    def __init__(self, dim: int, *, momentum: float = 0.9) -> None:
        """Starts at zero.

        Args:
            dim: k, of the outputs.
            momentum: m in [0, 1).
        """
        super().__init__()
        self._momentum = momentum
        self.register_buffer("value", torch.zeros(dim))

    @torch.no_grad()
    def update(self, outputs_nk: Tensor) -> None:
        """Takes in the outputs of a batch, all views in one tensor; over several ranks, those of all ranks."""
        outputs = outputs_nk.to(self.value.dtype)
        mean = sum_over_ranks(outputs.sum(dim=0)) / (world_size() * len(outputs))
        self.value.lerp_(mean, 1.0 - self._momentum)
