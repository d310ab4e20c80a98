"""open_clip's causal text towers for rows of any length: a short query costs what it is long, not the window."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from twinlens.training.modules.causal_text import EndToken, causal_text_features, project


class CausalTextTower(nn.Module):
    """A causal tower that pools at the end token, for rows of any length up to the window.

    A token only attends to those before it and the vector is taken at the end token, so what lies behind the end
    token (padding) changes nothing: a short query needs no padding to 77 tokens.
    """

    attn_mask: Tensor

    def __init__(self, tower: Any, end: EndToken) -> None:
        """Takes the parts of `tower`, an `open_clip.CLIP` or `open_clip.transformer.TextTransformer`."""
        super().__init__()
        self.token_embedding: nn.Module = tower.token_embedding
        self.positional_embedding: Tensor = tower.positional_embedding
        self.transformer: nn.Module = tower.transformer
        self.ln_final: nn.Module = tower.ln_final
        # A matrix, a linear layer, or nothing.
        self.text_projection: Tensor | nn.Module | None = tower.text_projection
        self.register_buffer("attn_mask", tower.attn_mask, persistent=False)
        self._end = end

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embeds ids, shape (n, l), to (n, d), not normalised."""
        return causal_text_features(self, input_ids, self._end)


class CocaTextTower(nn.Module):
    """CoCa's text tower for rows of any length up to the window.

    The tower appends a token of its own (`cls_emb`, at the last position of the window) and pools there; keys at
    padding are masked. open_clip shifts that mask by one place, and its published weights were trained with it: of the
    padding, the first token behind a text is visible, and the appended token does not see itself unless the text fills
    the window (https://github.com/mlfoundations/open_clip/issues/549). Kept as it is, this needs one token of padding
    behind each text, and no more.
    """

    def __init__(self, tower: Any) -> None:
        """Takes the parts of `tower`, an `open_clip.transformer.TextTransformer` with `embed_cls`."""
        super().__init__()
        self.token_embedding: nn.Module = tower.token_embedding
        self.positional_embedding: Tensor = tower.positional_embedding
        self.cls_emb: Tensor = tower.cls_emb
        self.transformer: nn.Module = tower.transformer
        self.ln_final: nn.Module = tower.ln_final
        self.text_projection: Tensor | nn.Module | None = tower.text_projection
        self._pad_id: int = tower.pad_id
        self._heads: int = tower.heads
        self._window: int = tower.context_length

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embeds ids, shape (n, l), to (n, d), not normalised."""
        rows, length = input_ids.shape[0], input_ids.shape[1]
        padded = torch.cat([input_ids, torch.full_like(input_ids[:, :1], self._pad_id)], dim=1)
        x = self.token_embedding(padded) + self.positional_embedding[: length + 1]
        appended = (self.cls_emb + self.positional_embedding[self._window]).expand(rows, 1, -1)
        x = self.transformer(torch.cat([x, appended], dim=1), attn_mask=self._mask(input_ids, x))
        return project(self.ln_final(x[:, -1]), self.text_projection)

    def _mask(self, input_ids: Tensor, x: Tensor) -> Tensor:
        """What may not be attended to as -inf, shape (n * heads, l + 2, l + 2)."""
        rows, length = input_ids.shape[0], input_ids.shape[1]
        holds_token = input_ids != self._pad_id
        # The place behind the row is the window's last, the appended token's own, if the row is as long as the window.
        # Read from a tensor: compared as a number, the exporter would fix the length.
        fills_window = torch.ones_like(input_ids).sum(dim=1, keepdim=True) == self._window
        first = torch.ones_like(holds_token[:, :1])
        behind = holds_token[:, -1:]
        visible = torch.cat([first, holds_token[:, :-1], behind & ~fills_window, behind & fills_window], dim=1)
        place = torch.arange(length + 2, device=x.device)
        allowed = visible[:, None, :] & (place[None, :, None] >= place[None, None, :])
        mask = torch.zeros_like(allowed, dtype=x.dtype).masked_fill(~allowed, float("-inf"))
        return mask[:, None].expand(rows, self._heads, length + 2, length + 2).flatten(0, 1)
