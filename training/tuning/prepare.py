"""What tuning changes in a model before it is trained: an added projection, patches that are left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.errors import ConfigError
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.towers.class_names import ClassNameTower


def check_tower(image_tower: Callable[[], nn.Module], config: TuningConfig) -> None:
    """Refuses what an image tower has no place for; it is left as it is.

    Args:
        image_tower: Gives it; not called where nothing is to be changed in it.
        config: What to change.

    Raises:
        ConfigError: saying what it is for.
    """
    if not (config.patch_dropout or config.image_residual):
        return
    visual = image_tower()
    if config.patch_dropout and _patch_dropout(visual, config.patch_dropout) is None:
        raise ConfigError("tuning.patch_dropout is for Vision Transformers, which see a picture as patches")
    if config.image_residual and not isinstance(visual, ClassNameTower):
        raise ConfigError(
            "tuning.image_residual is for towers that are joined through class names; this one has a projection already"
        )


def prepare(spec: DualEncoderSpec, model: nn.Module, config: TuningConfig) -> DualEncoderSpec:
    """Changes the model in place.

    Args:
        spec: What it is.
        model: See `build_towers`.
        config: What to change.

    Returns:
        What it is now.

    Raises:
        ConfigError: if its image tower has no place for what is asked.
    """
    visual: Any = model.visual
    check_tower(lambda: visual, config)
    if config.patch_dropout and (found := _patch_dropout(visual, config.patch_dropout)) is not None:
        owner, name, dropout = found
        setattr(owner, name, dropout)
    return _with_residual(spec, visual) if config.image_residual else spec


def _with_residual(spec: DualEncoderSpec, visual: ClassNameTower) -> DualEncoderSpec:
    try:
        visual.add_residual()
    except ValueError as error:
        raise ConfigError(f"tuning.image_residual: {error}") from error
    vision_cfg = spec.model_cfg["vision_cfg"]
    described = {**vision_cfg["class_names"], "residual": True}
    vision_cfg = {**vision_cfg, "class_names": described}
    return dataclasses.replace(spec, model_cfg={**spec.model_cfg, "vision_cfg": vision_cfg})


def _patch_dropout(visual: Any, share: float) -> tuple[nn.Module, str, nn.Module] | None:
    """The module that drops patches, and where it belongs in the tower; None where the tower sees no patches."""
    from open_clip.transformer import PatchDropout, VisionTransformer  # noqa: PLC0415 - seconds
    from timm.layers.patch_dropout import PatchDropout as TimmPatchDropout  # noqa: PLC0415
    from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer  # noqa: PLC0415

    trunk = getattr(getattr(visual, "backbone", visual), "trunk", None)
    if isinstance(visual, VisionTransformer):
        return visual, "patch_dropout", PatchDropout(share)
    if isinstance(trunk, TimmVisionTransformer):
        return trunk, "patch_drop", TimmPatchDropout(share, num_prefix_tokens=trunk.num_prefix_tokens)
    return None
