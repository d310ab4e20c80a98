"""A backbone that a method on pictures alone has trained, ready to export."""

from __future__ import annotations

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.export.fused_branches import fuse_branches
from twinlens.training.export.towers import ImageExport, frozen
from twinlens.training.modules.backbone import Backbone


def backbone_tower(backbone: Backbone, preprocess: PreprocessSpec) -> ImageExport:
    """Its pooled features; heads and further branches of the method are not part of it.

    Args:
        backbone: Put into evaluation mode, float32.
        preprocess: From decoded RGB to its input.
    """
    config = backbone.config
    pool = str(getattr(backbone.trunk, "global_pool", "") or "")
    return ImageExport(
        fuse_branches(frozen(backbone.trunk)),
        preprocess,
        architecture=config.timm if config.stem == "imagenet" else f"{config.timm} with the stem {config.stem}",
        pooling=pool if pool.isalnum() else "the model's own",
    )
