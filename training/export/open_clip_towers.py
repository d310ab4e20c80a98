"""The towers of an open_clip model, ready to export, with the model's own scoring rule."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec, ScoringRule, TextSpec
from twinlens.training.export.causal_text import CausalTextTower, CocaTextTower
from twinlens.training.export.errors import ExportError
from twinlens.training.export.fused_branches import fuse_branches
from twinlens.training.export.towers import ImageExport, TextExport, frozen
from twinlens.training.modules.causal_text import causal_tower


class ImageTowerModule(nn.Module):
    """`model.encode_image` as a module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.visual: nn.Module = fuse_branches(model.visual)

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, size, size), to (n, d), not normalised."""
        return _embedding(self.visual(pixels))


class WholeTextTower(nn.Module):
    """`model.encode_text` as a module; rows must fill the window, unless the tower masks padding itself."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        # Without the rest of the model: of CoCa, the exporter would meet the decoder.
        self.text: Any = getattr(model, "text", None)
        self.model: Any = model if self.text is None else None

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embeds ids, shape (n, context_length), to (n, d), not normalised."""
        return _embedding(self.model.encode_text(input_ids) if self.text is None else self.text(input_ids))


def open_clip_towers(
    model: nn.Module, preprocess: PreprocessSpec, text: TextSpec, tokenizer_json: str, model_cfg: dict[str, Any]
) -> tuple[ImageExport, TextExport]:
    """Splits an open_clip model into its towers.

    Args:
        model: An `open_clip.CLIP`, `CustomTextCLIP` or `CoCa`; put into evaluation mode, float32.
        preprocess: Its preprocessing.
        text: Its tokenisation; `pad_to_context` is decided here, by what the text tower is.
        tokenizer_json: Its tokenizer.
        model_cfg: Its open_clip configuration, for the descriptions.

    Raises:
        ExportError: if the model is none of those.
    """
    if not hasattr(model, "visual") or not hasattr(model, "encode_text"):
        raise ExportError(f"{type(model).__name__} is not a model with an image and a text tower")
    model = frozen(model)
    text_cfg = model_cfg.get("text_cfg", {})
    whole = WholeTextTower(model)
    trimmed = any_length_text_tower(model, whole)
    hugging_face = text_cfg.get("hf_model_name")
    text_export = TextExport(
        module=whole if trimmed is None else trimmed,
        spec=text.model_copy(update={"pad_to_context": trimmed is None, "attention_mask": False}),
        tokenizer_json=tokenizer_json,
        reference=whole,
        architecture=str(hugging_face or "TextTransformer"),
        pooling=str(text_cfg.get("hf_pooler_type") or "mean_pooler") if hugging_face else _text_pooling(text_cfg),
        activation="" if hugging_face else _activation(model_cfg, text_cfg),
    )
    return image_export(model, preprocess, model_cfg), text_export


def image_export(model: Any, preprocess: PreprocessSpec, model_cfg: dict[str, Any]) -> ImageExport:
    """The image tower, `model.visual`.

    Args:
        model: In evaluation mode, float32.
        preprocess: Its preprocessing.
        model_cfg: Its configuration, for the description.
    """
    vision_cfg = model_cfg.get("vision_cfg", {})
    return ImageExport(
        module=ImageTowerModule(model),
        preprocess=preprocess,
        architecture=_timm_name(vision_cfg) or type(model.visual).__name__,
        pooling=_image_pooling(vision_cfg),
        # timm towers keep their own activation whatever quick_gelu says.
        activation="" if _timm_name(vision_cfg) else _activation(model_cfg, vision_cfg),
    )


def scoring_rule(model: nn.Module) -> ScoringRule:
    """The model's own: softmax with exp(logit_scale) (CLIP), or sigmoid with scale and bias (SigLIP).

    Raises:
        ExportError: if the scale is missing or not finite.
    """
    scale = getattr(model, "logit_scale", None)
    if not isinstance(scale, Tensor) or not math.isfinite(scale.detach().item()):
        raise ExportError("the model has no finite logit_scale, so its cosines cannot become probabilities")
    bias = getattr(model, "logit_bias", None)
    value = math.exp(scale.detach().item())
    if isinstance(bias, Tensor):
        return ScoringRule(rule="sigmoid", scale=value, bias=bias.detach().item())
    return ScoringRule(rule="softmax", scale=value)


def any_length_text_tower(model: nn.Module, whole: nn.Module) -> nn.Module | None:
    """The text tower for any length, or None where the vector depends on how far rows are padded.

    Args:
        model: With an open_clip text tower.
        whole: Stands for the tower where that takes any length by itself.
    """
    tower: Any = getattr(model, "text", model)
    if type(tower).__name__ == "HFTextEncoder":
        return whole  # it masks padding by its id, and takes any length
    if isinstance(getattr(tower, "attn_mask", None), Tensor) and getattr(tower, "cls_emb", None) is not None:
        return None if tower.correct_cls_mask else CocaTextTower(tower)
    found = causal_tower(model)
    return None if found is None else CausalTextTower(*found)


def _embedding(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """With `output_tokens`, towers return their tokens beside the embedding."""
    return output[0] if isinstance(output, tuple) else output


def _timm_name(vision_cfg: dict[str, Any]) -> str:
    own = vision_cfg.get("backbone") or vision_cfg.get("class_names") or {}
    return str(own.get("timm") or vision_cfg.get("timm_model_name") or "")


def _image_pooling(vision_cfg: dict[str, Any]) -> str:
    if "class_names" in vision_cfg:
        return "class names, softmax-weighted"
    if _timm_name(vision_cfg):
        return str(vision_cfg.get("timm_pool") or "the model's own")
    if isinstance(vision_cfg.get("layers"), list) or vision_cfg.get("attentional_pool"):
        return "attention"
    return str(vision_cfg.get("pool_type") or "tok")


def _text_pooling(text_cfg: dict[str, Any]) -> str:
    return "cls" if text_cfg.get("embed_cls") else str(text_cfg.get("pool_type") or "argmax")


def _activation(model_cfg: dict[str, Any], tower_cfg: dict[str, Any]) -> str:
    if model_cfg.get("quick_gelu"):
        return "quick_gelu"
    return "gelu_tanh" if (tower_cfg.get("act_kwargs") or {}).get("approximate") == "tanh" else "gelu"
