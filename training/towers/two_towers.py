"""A dual encoder of any two towers, with the methods and the names of weights that open_clip's models have."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

# CLIP starts at a temperature of 0.07 (Radford et al. 2021, §2.5).
INITIAL_LOG_SCALE = math.log(1 / 0.07)


class TwoTowers(nn.Module):
    """Stands where others have an `open_clip.CustomTextCLIP`.

    Attributes:
        visual: The image tower.
        text: The text tower.
        logit_scale: Logarithm of the factor on cosines.
        logit_bias: SigLIP's; None: the model has no bias.
        pad_id: Of the ids that only fill a row.
        masked: Whether the text tower takes an attention mask.
    """

    logit_bias: nn.Parameter | None

    def __init__(
        self,
        visual: nn.Module,
        text: nn.Module,
        *,
        pad_id: int,
        masked: bool,
        log_scale: float = INITIAL_LOG_SCALE,
        bias: float | None = None,
    ) -> None:
        """Joins the towers; their weights stay where they are."""
        super().__init__()
        self.visual = visual
        self.text = text
        self.logit_scale = nn.Parameter(torch.tensor(log_scale))
        self.logit_bias = None if bias is None else nn.Parameter(torch.tensor(bias))
        self.pad_id = pad_id
        self.masked = masked

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Embeds normalised pixels, shape (n, 3, size, size), to (n, d), not normalised."""
        embeddings: Tensor = self.visual(pixels)
        return embeddings

    def encode_text(self, input_ids: Tensor) -> Tensor:
        """Embeds ids, shape (n, l), to (n, d), not normalised.

        No tokenizer gives the padding's id to a word, so the ids say by themselves which of them are padding. Columns
        of padding alone are not computed.
        """
        if self.masked:
            mask = input_ids != self.pad_id
            length = max(1, int(mask.any(dim=0).sum()))
            masked: Tensor = self.text(input_ids[:, :length], mask[:, :length].long())
            return masked
        embeddings: Tensor = self.text(input_ids)
        return embeddings
