"""From a model's configuration to a model with fresh weights: open_clip's towers, or those of the registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.errors import CheckpointError, TrainingRoomError, first_line
from twinlens.training.towers.registry import own_image_tower, own_text_tower
from twinlens.training.towers.two_towers import INITIAL_LOG_SCALE, TwoTowers

# The least towers that open_clip builds, where others take their place.
_NO_VISION = {"image_size": 1, "patch_size": 1, "layers": 1, "width": 1, "head_width": 1}
_NO_TEXT = {"context_length": 1, "vocab_size": 1, "width": 1, "heads": 1, "layers": 1}
_WRONG = (
    ArithmeticError,
    AssertionError,
    LookupError,
    RuntimeError,
    TrainingRoomError,
    TypeError,
    ValidationError,
    ValueError,
)


def build_towers(
    model_cfg: Mapping[str, Any], preprocess: PreprocessSpec, text: TextSpec, name: str = "the model"
) -> nn.Module:
    """Builds both towers.

    Args:
        model_cfg: See `DualEncoderSpec`.
        preprocess: The image tower's.
        text: The text tower's.
        name: What a person calls the model, for errors.

    Returns:
        An `open_clip.CLIP`, `CustomTextCLIP` or `CoCa` (without its decoder), or a `TwoTowers`. All have
        `encode_image(pixels_nchw)`, `encode_text(input_ids)`, `visual`, `logit_scale` and (possibly None) `logit_bias`.

    Raises:
        CheckpointError: if it cannot be built.
    """
    cfg: dict[str, Any] = json.loads(json.dumps(dict(model_cfg)))
    vision_cfg, text_cfg = cfg.setdefault("vision_cfg", {}), cfg.setdefault("text_cfg", {})
    try:
        embed_dim = int(cfg["embed_dim"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the configuration of {name!r} has no embed_dim") from error
    if not (isinstance(vision_cfg, dict) and isinstance(text_cfg, dict)):
        raise CheckpointError(f"the configuration of {name!r} has a vision_cfg or text_cfg that is no table")
    try:
        image_tower = own_image_tower(vision_cfg, embed_dim, preprocess)
    except _WRONG as error:
        raise CheckpointError(f"the image tower of {name!r} cannot be built: {first_line(error)}") from error
    try:
        text_tower = own_text_tower(text_cfg, embed_dim, text)
    except _WRONG as error:
        raise CheckpointError(f"the text tower of {name!r} cannot be built: {first_line(error)}") from error
    if image_tower is not None:
        cfg["vision_cfg"] = dict(_NO_VISION)
    if text_tower is not None:
        cfg["text_cfg"] = dict(_NO_TEXT)
        cfg["custom_text"] = False
    if image_tower is None or text_tower is None:
        try:
            model = _open_clip(cfg)
        except _WRONG as error:
            raise CheckpointError(f"open_clip cannot build the model {name!r}: {first_line(error)}") from error
        if text_tower is None:
            if image_tower is not None:
                model.visual = image_tower
            whole: nn.Module = model
            return whole
        image_tower = image_tower or model.visual
    assert image_tower is not None  # noqa: S101 - for the type checker
    scale, bias = cfg.get("init_logit_scale"), cfg.get("init_logit_bias")
    return TwoTowers(
        image_tower,
        text_tower,
        pad_id=text.pad_id,
        masked=text.attention_mask,
        log_scale=INITIAL_LOG_SCALE if scale is None else float(scale),
        bias=None if bias is None else float(bias),
    )


def _open_clip(cfg: dict[str, Any]) -> Any:
    from open_clip.coca_model import CoCa  # noqa: PLC0415 - pulls in timm: seconds
    from open_clip.model import CLIP, CustomTextCLIP  # noqa: PLC0415

    custom_text = bool(cfg.pop("custom_text", False))
    # What a checkpoint says is data: it has nothing looked up elsewhere.
    if cfg["text_cfg"].get("hf_model_name"):
        raise ValueError(
            "hf_model_name has a text tower looked up on Hugging Face; text_cfg.transformers describes one"
        )
    if ":" in str(cfg["vision_cfg"].get("timm_model_name") or ""):
        raise ValueError(f"{cfg['vision_cfg']['timm_model_name']!r} is a place, not the name of a model of timm")
    # The weights come from a checkpoint, or are fresh: pretrained parts would only be downloaded.
    cfg["vision_cfg"]["timm_model_pretrained"] = False
    if "multimodal_cfg" in cfg:
        model: Any = CoCa(**cfg)
        del model.text_decoder  # writes captions; embeddings do not need it
        return model
    return (CustomTextCLIP if custom_text else CLIP)(**cfg)
