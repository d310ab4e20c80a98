"""Which timm model is trained, as data; apart from it, so that settings are checked before torch is loaded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class BackboneConfig(BaseModel):
    """A timm model as data.

    Attributes:
        timm: Its name in timm, such as `resnet18` or `vit_tiny_patch16_224`.
        stem: What stands before a ResNet's blocks: timm's own (`imagenet`: stride 4); `cifar`: one 3x3 convolution of
            stride 1 and no pooling, as SimCLR and others train on 32-pixel pictures (Chen et al. 2020, appendix B.9);
            `cifar_stride2`: the same with stride 2, a quarter of the work.
        arguments: Further arguments of `timm.create_model`, such as `channels`, `layers`, `patch_size` or `depth`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    timm: str = "resnet18"
    stem: Literal["imagenet", "cifar", "cifar_stride2"] = "imagenet"
    arguments: dict[str, Any] = {}
