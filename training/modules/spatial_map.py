"""What an encoder knows of each place of a picture."""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.errors import ConfigError
from twinlens.training.modules.backbone import Backbone


def spatial_map(backbone: Backbone, pixels: Tensor) -> Tensor:
    """The features before pooling, one vector a place, of convolutional networks and of ViTs alike.

    Args:
        backbone: Of timm.
        pixels: Normalised, shape (n, 3, s, s).

    Returns:
        Shape (n, dim, h, w); a ViT's class and register tokens are left out.
    """
    maps = backbone.maps(pixels)
    if maps.ndim == 4:
        return maps
    patches = maps[:, int(backbone.trunk.num_prefix_tokens) :]
    side = round(patches.shape[1] ** 0.5)
    return patches.transpose(1, 2).reshape(len(patches), -1, side, side)


def map_side(backbone: Backbone) -> int:
    """Side of the map that the encoder gives at its own size.

    Raises:
        ConfigError: if it gives no square map of its features.
    """
    training = backbone.training
    parameter = next(backbone.parameters())
    backbone.eval()
    try:
        with torch.no_grad():
            maps = spatial_map(backbone, torch.zeros(1, 3, backbone.size, backbone.size).to(parameter))
    except RuntimeError:
        maps = torch.empty(0)
    finally:
        backbone.train(training)
    if maps.ndim != 4 or maps.shape[1] != backbone.dim or maps.shape[2] != maps.shape[3]:
        raise ConfigError(
            f"model.timm: {backbone.config.timm} gives no map of its features before pooling; take a ResNet or a ViT"
        )
    return maps.shape[-1]
