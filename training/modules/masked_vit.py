"""A Vision Transformer of timm that looks at some patches only, and how MAE starts it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from twinlens.training.errors import ConfigError
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.sincos_positions import sincos_positions


def check_maskable(backbone: Backbone) -> None:
    """Refuses encoders whose patches cannot be left out.

    Raises:
        ConfigError: unless it is a plain ViT with absolute positions.
    """
    from timm.models.vision_transformer import VisionTransformer  # noqa: PLC0415 - seconds

    trunk, name = backbone.trunk, backbone.config.timm
    plain = isinstance(trunk, VisionTransformer) and trunk.pos_embed is not None
    if not plain:
        raise ConfigError(
            f"model.timm: mae needs a plain Vision Transformer with absolute positions, which {name} is not; "
            "take for instance 'vit_tiny_patch16_224'"
        )
    if trunk.attn_pool is not None:
        raise ConfigError(f"model.timm: mae cannot train the attention pool of {name}; set arguments.global_pool='avg'")
    height, width = trunk.patch_embed.patch_size
    if height != width:
        raise ConfigError(f"model.arguments.patch_size: mae needs square patches, not {height}x{width}")
    width = int(trunk.embed_dim)
    if width % 4:
        raise ConfigError(f"model.arguments.embed_dim: mae's positions need a multiple of 4, not {width}")


def patch_side(backbone: Backbone) -> int:
    """Side of a patch of a ViT, in pixels."""
    side: int = backbone.trunk.patch_embed.patch_size[0]
    return side


def patch_rows(backbone: Backbone) -> int:
    """How many rows of patches a ViT cuts its pictures into; there are as many columns."""
    return backbone.size // patch_side(backbone)


def encode_visible(backbone: Backbone, pixels: Tensor, visible_nk: Tensor) -> Tensor:
    """Runs the transformer over the visible patches alone (MAE, He et al. 2022, §3, "MAE encoder").

    Positions are added before patches are left out, so every patch keeps its own. With all patches visible, in order,
    the result is that of `backbone.maps`.

    Args:
        backbone: Around a ViT of timm.
        pixels: Normalised, shape (n, 3, s, s).
        visible_nk: int64, shape (n, k): the places of the visible patches.

    Returns:
        Normalised tokens, shape (n, prefix + k, dim): class and register tokens first, then patches in given order.
    """
    trunk = backbone.trunk
    # timm's own sum of patches and positions, whatever its options (class token, registers, other sizes).
    tokens: Tensor = trunk._pos_embed(trunk.patch_embed(pixels))  # noqa: SLF001
    prefix = int(trunk.num_prefix_tokens)
    index = visible_nk.unsqueeze(-1).expand(-1, -1, tokens.shape[-1])
    tokens = torch.cat([tokens[:, :prefix], tokens[:, prefix:].gather(1, index)], dim=1)
    encoded: Tensor = trunk.norm(trunk.blocks(trunk.norm_pre(tokens)))
    # A ViT that averages its patches normalises after that; here each token is, so that the gain is trained too.
    if isinstance(trunk.norm, nn.Identity):
        encoded = trunk.fc_norm(encoded)
    return encoded


@torch.no_grad()
def start_as_mae(backbone: Backbone) -> None:
    """Draws the first weights as MAE does (He et al. 2022, app. A.1), and fixes the positions.

    Linear layers by Xavier's uniform rule, the patch embedding like a linear layer, tokens N(0, 0.02²), positions by
    sines and cosines and not trained.
    """
    trunk = backbone.trunk
    trunk.apply(xavier_linear)
    projection = trunk.patch_embed.proj.weight
    nn.init.xavier_uniform_(projection.view(len(projection), -1))
    for token in (trunk.cls_token, trunk.reg_token):
        if token is not None:
            nn.init.normal_(token, std=0.02)
    rows = patch_rows(backbone)
    prefix = 0 if trunk.no_embed_class else int(trunk.num_prefix_tokens)
    trunk.pos_embed.copy_(sincos_positions(trunk.embed_dim, rows, rows, prefix=prefix))
    trunk.pos_embed.requires_grad_(False)


def xavier_linear(module: nn.Module) -> None:
    """Starts a linear layer by Xavier's uniform rule and without bias; leaves every other module alone."""
    layer: Any = module
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
