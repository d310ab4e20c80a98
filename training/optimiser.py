"""AdamW with warm-up and cosine decay, as CLIP and its successors train."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up over `warmup_steps` to the full rate, then half a cosine down to 0 at `steps`."""

    steps: int
    warmup_steps: int

    def factor(self, step: int) -> float:
        """The share of the full learning rate at `step`, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def adamw(module: nn.Module, *, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """Fused AdamW; gains, biases and the temperature (fewer than two dimensions) are not decayed.

    β₂ = 0.98 and ε = 1e-6 are those of CLIP's transformers (Radford et al. 2021, table 19).
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=True)
