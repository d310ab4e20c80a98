"""The towers of a dual encoder as its checkpoint describes it, whoever built them."""

from __future__ import annotations

from typing import Any

from torch import nn

from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.export.open_clip_towers import image_export, open_clip_towers
from twinlens.training.export.towers import ImageExport, TextExport, frozen
from twinlens.training.towers.two_towers import TwoTowers

# What `text_cfg` may describe beside open_clip's towers: architecture, pooling and activation, for people.
_MINILM = ("all-MiniLM-L6-v2", "mean", "gelu")


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
    architecture, pooling, activation = _described(spec.model_cfg.get("text_cfg", {}))
    text = TextExport(
        module=model.text,
        spec=spec.text.model_copy(update={"pad_to_context": False}),
        tokenizer_json=spec.tokenizer_json,
        architecture=architecture,
        pooling=pooling,
        activation=activation,
    )
    return image_export(model, spec.preprocess, spec.model_cfg), text


def _described(text_cfg: dict[str, Any]) -> tuple[str, str, str]:
    return _MINILM if "minilm" in text_cfg else ("", "", "")
