"""`vision_cfg.backbone`: a timm model without its classifier, as methods on pictures alone train it."""

from __future__ import annotations

from typing import Any

from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.projected_backbone import ProjectedBackbone


def build_projected_backbone(described: Any, embed_dim: int, size: int) -> ProjectedBackbone:
    """Builds the backbone with a projection on top.

    Args:
        described: See `BackboneConfig`.
        embed_dim: Of the joint space.
        size: Side of the pictures.

    Raises:
        ConfigError, ValidationError, ValueError: if it cannot be built.
    """
    return ProjectedBackbone(build_backbone(BackboneConfig.model_validate(described), size), embed_dim)
