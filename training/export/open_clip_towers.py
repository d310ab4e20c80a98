"""The towers of an open_clip model, ready to export, with the model's own scoring rule."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec, ScoringRule, TextSpec
from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import ImageExport, TextExport


class ImageTowerModule(nn.Module):
    """`model.encode_image` as a module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.visual: nn.Module = model.visual

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, size, size), to (n, d), not normalised."""
        embeddings: Tensor = self.visual(pixels)
        return embeddings


class WholeTextTower(nn.Module):
    """`model.encode_text` as a module; rows must fill the window."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embeds ids, shape (n, context_length), to (n, d), not normalised."""
        embeddings: Tensor = self.model.encode_text(input_ids)
        return embeddings


class CausalTextTower(nn.Module):
    """open_clip's causal text tower for rows of any length up to the window.

    A token only attends to those before it and the vector is taken at the end token, so what lies behind the end
    token (padding) changes nothing: a short query needs no padding to 77 tokens.
    """

    attn_mask: Tensor

    def __init__(self, tower: Any, pool_type: str, eos_id: int) -> None:
        """Takes the parts of `tower`, an `open_clip.CLIP` or `open_clip.transformer.TextTransformer`."""
        super().__init__()
        self.token_embedding: nn.Module = tower.token_embedding
        self.positional_embedding: Tensor = tower.positional_embedding
        self.transformer: nn.Module = tower.transformer
        self.ln_final: nn.Module = tower.ln_final
        # A matrix, a linear layer, or nothing.
        self.text_projection: Tensor | nn.Module | None = tower.text_projection
        self.register_buffer("attn_mask", tower.attn_mask, persistent=False)
        self._pool_type = pool_type
        self._eos_id = eos_id

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embeds ids, shape (n, l), to (n, d), not normalised."""
        length = input_ids.shape[1]
        x = self.token_embedding(input_ids) + self.positional_embedding[:length]
        x = self.transformer(x, attn_mask=self.attn_mask[:length, :length])
        if self._pool_type == "eos":
            position = torch.eq(input_ids, self._eos_id).int().argmax(dim=-1)
        else:  # CLIP: the end token has the highest id
            position = input_ids.argmax(dim=-1)
        x = self.ln_final(x)
        pooled: Tensor = x[torch.arange(x.shape[0], device=x.device), position]
        if self.text_projection is None:
            return pooled
        if isinstance(self.text_projection, nn.Module):
            projected: Tensor = self.text_projection(pooled)
            return projected
        return pooled @ self.text_projection


def open_clip_towers(
    model: nn.Module, preprocess: PreprocessSpec, text: TextSpec, tokenizer_json: str, model_cfg: dict[str, Any]
) -> tuple[ImageExport, TextExport]:
    """Splits an open_clip model into its towers.

    Args:
        model: An `open_clip.CLIP` or `open_clip.CustomTextCLIP`; put into evaluation mode, float32.
        preprocess: Its preprocessing.
        text: Its tokenisation; `pad_to_context` is decided here, by what the text tower is.
        tokenizer_json: Its tokenizer.
        model_cfg: Its open_clip configuration, for the descriptions.

    Raises:
        ExportError: if the model is none of those.
    """
    if not hasattr(model, "visual") or not hasattr(model, "encode_text"):
        raise ExportError(f"{type(model).__name__} is not a model with an image and a text tower")
    model = model.eval().float()
    for parameter in model.parameters():
        parameter.requires_grad = False
    vision_cfg, text_cfg = model_cfg.get("vision_cfg", {}), model_cfg.get("text_cfg", {})
    activation = "quick_gelu" if model_cfg.get("quick_gelu") else "gelu"
    trimmed = _causal_text_tower(model)
    whole = WholeTextTower(model)
    image_export = ImageExport(
        module=ImageTowerModule(model),
        preprocess=preprocess,
        architecture=str(vision_cfg.get("timm_model_name") or type(model.visual).__name__),
        pooling=str(vision_cfg.get("timm_pool") or vision_cfg.get("pool_type") or "tok"),
        # timm towers keep their own activation whatever quick_gelu says.
        activation="" if vision_cfg.get("timm_model_name") else activation,
    )
    text_export = TextExport(
        module=whole if trimmed is None else trimmed,
        spec=text.model_copy(update={"pad_to_context": trimmed is None, "attention_mask": False}),
        tokenizer_json=tokenizer_json,
        reference=whole,
        architecture="TextTransformer",
        pooling=str(text_cfg.get("pool_type") or "argmax"),
        activation=activation,
    )
    return image_export, text_export


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


def _causal_text_tower(model: nn.Module) -> CausalTextTower | None:
    """The text tower for any length, or None where the vector depends on the padding."""
    tower = getattr(model, "text", model)
    pool_type = str(getattr(model, "text_pool_type", "") or getattr(tower, "pool_type", ""))
    causal = isinstance(getattr(tower, "attn_mask", None), Tensor)
    plain = getattr(tower, "cls_emb", None) is None and not getattr(tower, "output_tokens", False)
    if not (causal and plain and pool_type in {"argmax", "eos"} and hasattr(tower, "token_embedding")):
        return None
    eos_id = getattr(model, "text_eos_id", None) if tower is model else getattr(tower, "eos_id", None)
    if pool_type == "eos" and eos_id is None:
        return None
    return CausalTextTower(tower, pool_type, eos_id or 0)
