"""`text_cfg.open_clip_hugging_face`: open_clip's adapter of a transformers encoder, without a hub or a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from torch import nn


class OpenClipHuggingFaceConfig(BaseModel):
    """A tower as data.

    Attributes:
        config: The encoder's configuration, with its `model_type`.
        pooler: open_clip's name of the pooling; None: its default for the type.
        projection: `linear`, `mlp`, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any]
    pooler: str | None = None
    projection: str | None = None


def build_open_clip_hugging_face(described: Any, embed_dim: int) -> nn.Module:
    """Builds the tower with fresh weights, as open_clip does; it masks padding by itself.

    Args:
        described: See `OpenClipHuggingFaceConfig`.
        embed_dim: Of the joint space.

    Raises:
        ExportError: if transformers is not installed.
        ValidationError, ValueError, KeyError, TypeError: if it cannot be built.
    """
    from open_clip.hf_model import HFTextEncoder  # noqa: PLC0415 - seconds

    from twinlens.training.towers.transformers_config import config_of  # noqa: PLC0415

    given = OpenClipHuggingFaceConfig.model_validate(described)
    config = config_of(given.config)
    tower: Any = HFTextEncoder("", embed_dim, config=config, pooler_type=given.pooler, proj_type=given.projection)
    # Given a configuration, open_clip adds transformers' pooling layer and the decoder, which it leaves out otherwise.
    if getattr(config, "is_encoder_decoder", False):
        tower.transformer = tower.transformer.encoder
    elif given.pooler != "cls_pooler" and getattr(tower.transformer, "pooler", None) is not None:
        tower.transformer.pooler = None
    module: nn.Module = tower
    return module


def trainable_cfg(model_cfg: Mapping[str, Any], text_tower: Any) -> dict[str, Any]:
    """The configuration of an open_clip model, with a transformers encoder described in full instead of by its name.

    Args:
        model_cfg: open_clip's.
        text_tower: The one that was built.
    """
    from twinlens.training.towers.transformers_config import as_data  # noqa: PLC0415 - transformers

    text_cfg = model_cfg["text_cfg"]
    if not text_cfg.get("hf_model_name"):
        return dict(model_cfg)
    described = {
        "config": as_data(text_tower.config),
        "pooler": text_cfg.get("hf_pooler_type"),
        "projection": text_cfg.get("hf_proj_type"),
    }
    return {**model_cfg, "text_cfg": {"open_clip_hugging_face": described}}
