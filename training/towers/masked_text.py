"""A transformers encoder with a mask, a pooling, and what follows: a sentence encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "last")


class MaskedTextTower(nn.Module):
    """An encoder with a mask, a pooling, and what follows: `mean`, `cls`, `max`, `mean_sqrt_len` or `last` token."""

    def __init__(self, encoder: nn.Module, pooling: str, head: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.head = nn.Sequential(*head)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeds ids and mask, both of shape (n, l), to (n, d), not normalised."""
        tokens: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.to(tokens.dtype).unsqueeze(-1)
        if self.pooling == "cls":
            pooled = tokens[:, 0]
        elif self.pooling == "max":
            pooled = tokens.masked_fill(weights == 0, torch.finfo(tokens.dtype).min).amax(dim=1)
        elif self.pooling == "last":
            # Of the places that hold a token the last; of equal numbers, argmax takes the first.
            place = torch.arange(tokens.shape[1], device=tokens.device) * attention_mask
            pooled = tokens[torch.arange(tokens.shape[0], device=tokens.device), place.argmax(dim=1)]
        else:
            count = weights.sum(dim=1).clamp(min=1e-9)
            pooled = (tokens * weights).sum(dim=1) / (count.sqrt() if self.pooling == "mean_sqrt_len" else count)
        embeddings: Tensor = self.head(pooled)
        return embeddings


class UnitLength(nn.Module):
    """sentence-transformers' `Normalize`; matters only where a layer follows."""

    def forward(self, x: Tensor) -> Tensor:
        """Rows of shape (n, d) to length one."""
        return nn.functional.normalize(x, dim=-1)
