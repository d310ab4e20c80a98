"""MAE's decoder: from the tokens of visible patches to the pixels of all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from twinlens.training.modules.masked_vit import xavier_linear
from twinlens.training.modules.sincos_positions import sincos_positions


class MaskedDecoder(nn.Module):
    """A small transformer that is thrown away after training (MAE, He et al. 2022, §3, "MAE decoder").

    One learned token stands for every hidden patch; fixed positions tell it which one it is to become.
    """

    positions: Tensor

    def __init__(
        self,
        *,
        encoder_dim: int,
        rows: int,
        patch_values: int,
        prefix: int,
        width: int,
        depth: int,
        heads: int,
    ) -> None:
        """Builds it with fresh weights.

        Args:
            encoder_dim: Length of the encoder's tokens.
            rows: Of patches in a picture; there are as many columns.
            patch_values: Predicted for each patch: side² · 3.
            prefix: Class and register tokens that the encoder puts in front.
            width: Of the decoder's tokens; a multiple of 4 and of `heads`.
            depth: Blocks.
            heads: Of its attention.
        """
        super().__init__()
        from timm.models.vision_transformer import Block  # noqa: PLC0415 - seconds

        self.prefix = prefix
        self.patches = rows * rows
        self.embed = nn.Linear(encoder_dim, width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.Sequential(*[Block(width, heads, qkv_bias=True) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=1e-6)  # as in timm's blocks
        self.predict = nn.Linear(width, patch_values)
        self.register_buffer("positions", sincos_positions(width, rows, rows, prefix=prefix), persistent=False)
        self.apply(xavier_linear)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, tokens: Tensor, visible_nk: Tensor) -> Tensor:
        """Predicts the values of all patches.

        Args:
            tokens: Of the encoder, shape (n, prefix + k, encoder_dim).
            visible_nk: int64, shape (n, k): the places of the k patches.

        Returns:
            Shape (n, patches, patch_values), in the order of the picture.
        """
        embedded = self.embed(tokens)
        front, visible = embedded[:, : self.prefix], embedded[:, self.prefix :]
        index = visible_nk.unsqueeze(-1).expand_as(visible)
        # Autocast gives the embedded tokens another type than the parameter has.
        hidden = self.mask_token.to(visible.dtype).expand(len(tokens), self.patches, -1)
        everything = torch.cat([front, hidden.scatter(1, index, visible)], dim=1)
        decoded: Tensor = self.norm(self.blocks(everything + self.positions.to(everything.dtype)))
        predicted: Tensor = self.predict(decoded[:, self.prefix :])
        return predicted
