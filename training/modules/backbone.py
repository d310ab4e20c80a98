"""The image encoder that a method trains and that is exported: a timm model without its classifier."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.training.errors import ConfigError, first_line
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.short_attention import short_attention
from twinlens.training.modules.small_map_convolution import mend_small_maps
from twinlens.training.pull.near_names import perhaps

# Of the arguments of `timm.create_model`, those that are no choice.
_FIXED = frozenset(
    {"pretrained", "checkpoint_path", "num_classes", "in_chans", "img_size", "dynamic_img_size", "features_only"}
)


class Backbone(nn.Module):
    """Pixels to pooled features, not normalised.

    Attributes:
        trunk: The timm model, without classifier.
        config: What it is.
        size: Side of the pictures it is evaluated and exported at.
        dim: Length of its features.
        is_vit: Whether it is a Vision Transformer (tokens instead of maps).
    """

    def __init__(self, trunk: nn.Module, config: BackboneConfig, size: int) -> None:
        super().__init__()
        self.trunk: Any = trunk
        self.config = config
        self.size = size
        # Some networks of timm widen their features after pooling.
        features: Any = trunk.num_features
        self.dim = int(getattr(trunk, "head_hidden_size", features))
        self.is_vit = hasattr(trunk, "patch_embed") and hasattr(trunk, "blocks")

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds normalised pixels, shape (n, 3, s, s), to (n, dim)."""
        with self._attention(pixels):
            features: Tensor = self.trunk(pixels)
        return features

    def maps(self, pixels: Tensor) -> Tensor:
        """The features before pooling: (n, dim, h, w) of a convolutional network, (n, tokens, dim) of a ViT."""
        with self._attention(pixels):
            features: Tensor = self.trunk.forward_features(pixels)
        return features

    def _attention(self, pixels: Tensor) -> AbstractContextManager[None]:
        """See `short_attention`; here and not around a step, for a chunk must be encoded twice in the same way."""
        patch = getattr(self.trunk.patch_embed, "patch_size", None) if self.is_vit else None
        if patch is None:
            return nullcontext()
        return short_attention(pixels.device, (pixels.shape[-2] // patch[0]) * (pixels.shape[-1] // patch[1]))


def build_backbone(config: BackboneConfig, size: int) -> Backbone:
    """Builds the model with fresh weights; nothing is downloaded.

    A ViT is built for pictures of `size`, and takes other sizes (multi-crop) by resampling its positions.

    Args:
        config: What to build.
        size: Side of the pictures.

    Raises:
        ConfigError: if timm has no such model, the name asks for trained weights, timm refuses the arguments, the stem
            is for ResNets, or the model gives no pooled features at this size.
    """
    import timm  # noqa: PLC0415 - seconds

    name = config.timm
    if not timm.is_model(name):
        raise ConfigError(f"model.timm: timm has no model {name!r}{perhaps(name, timm.list_models())}")
    if "." in name:
        model, _, tag = name.partition(".")
        raise ConfigError(f"model.timm: {tag!r} names trained weights, but training starts from fresh ones: {model!r}")
    for key in sorted(_FIXED & config.arguments.keys()):
        raise ConfigError(f"model.arguments may not set {key!r}: the run decides it")
    arguments: dict[str, Any] = {"num_classes": 0, **config.arguments}
    if name.startswith(("vit_", "deit")):
        arguments = {"img_size": size, "dynamic_img_size": True, **arguments}
    try:
        trunk = timm.create_model(name, pretrained=False, **arguments)
    except Exception as error:  # of a library, given arguments of any kind
        raise ConfigError(f"model: timm cannot build {name}: {first_line(error)}") from error
    if config.stem != "imagenet":
        _replace_stem(trunk, name, stride=1 if config.stem == "cifar" else 2)
    mend_small_maps(trunk)
    backbone = Backbone(trunk, config, size)
    _check_output(backbone)
    return backbone


def _replace_stem(trunk: Any, name: str, *, stride: int) -> None:
    if not isinstance(getattr(trunk, "conv1", None), nn.Conv2d) or not hasattr(trunk, "maxpool"):
        raise ConfigError(f"model.stem: {name} is no ResNet with a plain stem; leave it at 'imagenet'")
    old = trunk.conv1
    trunk.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(trunk.conv1.weight, mode="fan_out", nonlinearity="relu")
    trunk.maxpool = nn.Identity()


def features_of_blank(backbone: Backbone, side: int) -> Any:
    """What the encoder makes of two blank pictures, which tells whether it takes pictures of this side at all.

    A tensor of shape (2, dim), unless the network does not pool its features. The encoder is left as it was, running
    statistics included; whatever it raises is passed on.
    """
    training = backbone.training
    backbone.eval()
    try:
        with torch.no_grad():
            return backbone(torch.zeros(2, 3, side, side))
    finally:
        backbone.train(training)


def _check_output(backbone: Backbone) -> None:
    try:
        output = features_of_blank(backbone, backbone.size)
    except Exception as error:  # of a library, built with arguments of any kind
        raise ConfigError(
            f"model: {backbone.config.timm} does not take pictures of {backbone.size}x{backbone.size}: "
            f"{first_line(error)}"
        ) from error
    if not isinstance(output, Tensor) or output.shape != (2, backbone.dim):
        raise ConfigError(f"model: {backbone.config.timm} gives no pooled features, one row a picture")
