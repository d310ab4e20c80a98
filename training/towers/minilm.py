"""`text_cfg.minilm`: the starter's text tower, all-MiniLM-L6-v2."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from twinlens.encoders.manifest import TextSpec
from twinlens.training.starter.minilm import WIDTH, MiniLM


class MiniLMConfig(BaseModel):
    """There is nothing to choose: the architecture is one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def build_minilm(described: Any, embed_dim: int, text: TextSpec) -> MiniLM:
    """Builds the tower with fresh weights.

    Args:
        described: See `MiniLMConfig`.
        embed_dim: Of the joint space.
        text: How ids are made.

    Raises:
        ValidationError, ValueError: if the description, the width or the tokenisation is not MiniLM's.
    """
    MiniLMConfig.model_validate(described)
    if embed_dim != WIDTH:
        raise ValueError(f"MiniLM has {WIDTH} dimensions, not {embed_dim}")
    if not text.attention_mask:
        raise ValueError("MiniLM needs an attention mask")
    return MiniLM()
