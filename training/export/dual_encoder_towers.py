"""The towers of a dual encoder as its checkpoint describes it, whoever built them."""

from __future__ import annotations

from typing import Any

from torch import nn

from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.export.open_clip_towers import image_export, open_clip_towers
from twinlens.training.export.towers import ImageExport, TextExport, frozen
from twinlens.training.starter.minilm import MiniLM
from twinlens.training.towers.masked_text import MaskedTextTower
from twinlens.training.towers.two_towers import TwoTowers


def dual_encoder_towers(spec: DualEncoderSpec, model: nn.Module) -> tuple[ImageExport, TextExport]:
    """Splits a dual encoder into its towers.

    Args:
        spec: What it is.
        model: See `build_towers`; put into evaluation mode, float32.

    Raises:
        ExportError: if its text tower cannot be exported.
    """
    if not isinstance(model, TwoTowers):
        return open_clip_towers(model, spec.preprocess, spec.text, spec.tokenizer_json, spec.model_cfg)
    frozen(model)
    architecture, pooling, activation = _described(model.text)
    # open_clip's adapter masks padding by its id, so it takes rows of any length whatever its tokenizer is used to.
    any_length = "open_clip_hugging_face" in spec.model_cfg.get("text_cfg", {})
    text = TextExport(
        module=model.text,
        spec=spec.text.model_copy(update={"pad_to_context": False}) if any_length else spec.text,
        tokenizer_json=spec.tokenizer_json,
        architecture=architecture,
        pooling=pooling,
        activation=activation,
    )
    return image_export(model, spec.preprocess, spec.model_cfg), text


def _described(tower: nn.Module) -> tuple[str, str, str]:
    """Architecture, pooling and activation, for people."""
    if isinstance(tower, MiniLM):
        return "all-MiniLM-L6-v2", "mean", "gelu"
    if isinstance(tower, MaskedTextTower):
        encoder: Any = tower.encoder
        return type(encoder).__name__, tower.pooling, str(getattr(encoder.config, "hidden_act", ""))
    return type(tower).__name__, "", ""
