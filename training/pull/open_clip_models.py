"""open_clip's models: CLIP, SigLIP, CoCa and their kin, with timm and transformers towers inside."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from twinlens.encoders.manifest import Lineage
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, save_checkpoint
from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import open_clip_towers, scoring_rule
from twinlens.training.hub import hub_file
from twinlens.training.progress import Say
from twinlens.training.pull.checkpoints import Weights, fit_weights, read_weights, without_prefix
from twinlens.training.pull.open_clip_config import OpenClipConfig, built_in, check_pictures, from_file
from twinlens.training.pull.open_clip_listing import model_configs, tag_config, tags_of
from twinlens.training.pull.preprocessing import from_open_clip
from twinlens.training.pull.published_weights import open_clip_tag, published_weights
from twinlens.training.pull.pulled import RANDOM_WEIGHTS, PulledTowers
from twinlens.training.pull.source import Choices, Source, weights_file, weights_label
from twinlens.training.pull.tokenizer_choice import check_vocabulary, open_clip_tokenizer
from twinlens.training.pull.transformers_models import refuse_own_code
from twinlens.training.towers.open_clip_hugging_face import trainable_cfg

# Constants and buffers that older versions kept among the weights.
_DROPPED = ("attn_mask", "text.attn_mask", "text.transformer.embeddings.position_ids", "text_decoder.")


def open_clip_model(source: Source, choices: Choices, say: Say) -> PulledTowers:
    """Builds a model that open_clip lists, or one of a configuration file, with its weights.

    Raises:
        ExportError: if the configuration, the tokenizer or the weights cannot be had or do not fit.
    """
    config = from_file(source.model, choices.config) if choices.config else built_in(source.model)
    return open_clip_from(config, source, choices, say)


def open_clip_from(config: OpenClipConfig, source: Source, choices: Choices, say: Say) -> PulledTowers:
    """Builds the model of a configuration; `source.weights` says with which weights.

    Raises:
        ExportError: as `open_clip_model`.
    """
    check_pictures(config)
    tokenizer = open_clip_tokenizer(config, choices.tokenizer)
    tag_cfg = open_clip_tag(source) if choices.config is None else {}
    weights = _weights(source, tag_cfg, choices, say)
    model_cfg = _model_cfg(config, tag_cfg, weights, choices)
    model = _build(config, model_cfg)
    if weights is not None:
        _fit(model, weights, choices.weights_prefix)
    text_tower: Any = getattr(model, "text", model)
    if model_cfg["text_cfg"].get("hf_model_name"):
        check_vocabulary(tokenizer, int(text_tower.vocab_size), config.name)
        if tokenizer.spec.pad_id != text_tower.config.pad_token_id:
            raise ExportError(
                f"the tokenizer pads with id {tokenizer.spec.pad_id}, the text tower of {config.name} masks "
                f"{text_tower.config.pad_token_id}: it belongs to another model"
            )
    preprocess = from_open_clip(_preprocess_cfg(config, source, tag_cfg, model))
    image, text = open_clip_towers(model, preprocess, tokenizer.spec, tokenizer.json, model_cfg)
    label = weights_label(source.weights)
    name = f"{config.name}-{label}"
    method = f"open_clip {config.name}" + (f":{label}" if source.weights else ", random weights")
    spec = DualEncoderSpec(trainable_cfg(model_cfg, text_tower), preprocess, tokenizer.spec, tokenizer.json, name)
    keep = partial(save_checkpoint, spec=spec, model=model, meta=CheckpointMeta(lineage=Lineage(method=method)))
    return PulledTowers(image, text, name, method, scoring_rule(model), keep)


def _weights(source: Source, tag_cfg: dict[str, Any], choices: Choices, say: Say) -> Weights | None:
    if source.weights is None:
        say(RANDOM_WEIGHTS.format(source=source))
        return None
    if tag_cfg:
        return read_weights(published_weights(source.model, source.weights, tag_cfg))
    path = weights_file(source.weights)
    if path is None:
        raise ExportError(f"no checkpoint at {source.weights}")
    weights = read_weights(path)
    if not choices.config and not weights.openai:
        _warn_of_the_other_gelu(source, say)
    return weights


def _warn_of_the_other_gelu(source: Source, say: Say) -> None:
    """Weights do not say which GELU they were trained with, and the other one loads without an error.

    Many a checkpoint was fine-tuned from `ViT-B-32:openai`, whose GELU is not that of the configuration `ViT-B-32`
    (https://github.com/mlfoundations/open_clip/issues/771).
    """
    twin = f"{source.model}-quickgelu"
    if twin in model_configs():
        say(f"computed with GELU; if the weights descend from OpenAI's, they need quick-GELU: pull {twin}:FILE")


def _model_cfg(
    config: OpenClipConfig, tag_cfg: dict[str, Any], weights: Weights | None, choices: Choices
) -> dict[str, Any]:
    cfg = copy.deepcopy(config.model_cfg)
    if tag_cfg:
        # open_clip only warns when a tag was trained with the other GELU; the vectors would be wrong.
        cfg["quick_gelu"] = bool(tag_cfg.get("quick_gelu", False))
    elif weights is not None and weights.openai:
        cfg["quick_gelu"] = True
    if cfg["text_cfg"].get("hf_model_name"):
        cfg["text_cfg"]["hf_model_name"] = _architecture_folder(config, choices)
    return cfg


def _architecture_folder(config: OpenClipConfig, choices: Choices) -> str:
    """A folder with the `config.json` of a transformers text tower; its weights are in open_clip's file."""
    name = str(config.text_cfg["hf_model_name"])
    folder = Path(choices.tokenizer or name).expanduser()
    if not (folder / "config.json").is_file():
        instead = f"put its config.json and tokenizer in a folder and name that with --tokenizer (text tower of {name})"
        folder = hub_file(name, ["config.json"], instead).parent
    refuse_own_code(folder, name)
    return str(folder)


def _build(config: OpenClipConfig, model_cfg: dict[str, Any]) -> nn.Module:
    from open_clip.coca_model import CoCa  # noqa: PLC0415
    from open_clip.model import CLIP, CustomTextCLIP  # noqa: PLC0415

    cfg = copy.deepcopy(model_cfg)
    custom_text = bool(cfg.pop("custom_text", False)) or bool(cfg["text_cfg"].get("hf_model_name"))
    # The weights come from one file: pretrained parts would be downloaded only to be overwritten.
    cfg["vision_cfg"]["timm_model_pretrained"] = False
    if cfg["text_cfg"].get("hf_model_name"):
        cfg["text_cfg"]["hf_model_pretrained"] = False
    kind = CoCa if config.is_coca else CustomTextCLIP if custom_text else CLIP
    try:
        model: nn.Module = kind(**cfg)
    except Exception as error:  # open_clip checks little of a configuration
        raise ExportError(f"open_clip cannot build {config.name}: {first_line(error)}") from error
    if config.is_coca:
        del model.text_decoder  # writes captions; embeddings do not need it
    return model


def _fit(model: nn.Module, weights: Weights, prefix: str | None) -> None:
    """As open_clip's `load_checkpoint`, less what it guesses.

    Position embeddings of another size, which it resamples, and a missing `logit_bias`, which it takes to be zero, are
    errors here: the vectors or the probabilities would not be the checkpoint's.
    """
    from open_clip.convert import convert_state_dict  # noqa: PLC0415
    from open_clip.model import convert_to_custom_text_state_dict  # noqa: PLC0415

    own = model.state_dict()
    names = [*own, *(name.removeprefix("text.") for name in own)]
    tensors = without_prefix(weights, dict.fromkeys(names), prefix)
    tensors = convert_state_dict(model, tensors)
    if "positional_embedding" in tensors and not hasattr(model, "positional_embedding"):
        tensors = convert_to_custom_text_state_dict(tensors)
    for scalar in ("logit_scale", "logit_bias"):
        if scalar in tensors and scalar in own and tensors[scalar].numel() == own[scalar].numel():
            tensors[scalar] = tensors[scalar].reshape(own[scalar].shape)
    fit_weights(model, Weights(tensors, weights.origin, weights.openai), prefix="", drop=_DROPPED)


def _preprocess_cfg(
    config: OpenClipConfig, source: Source, tag_cfg: dict[str, Any], model: nn.Module
) -> dict[str, Any]:
    """As open_clip resolves it; for a file, as all weights published for this name have it.

    open_clip itself falls back to OpenAI's mean and deviation for any file, which are wrong for SigLIP.
    """
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict  # noqa: PLC0415

    stated = tag_cfg or ({} if config.preprocess_cfg else _common_preprocessing(source.model))
    merged: dict[str, Any] = merge_preprocess_dict(
        merge_preprocess_dict(PreprocessCfg(), stated), config.preprocess_cfg
    )
    merged["size"] = getattr(model.visual, "image_size", merged["size"])
    return merged


def _common_preprocessing(name: str) -> dict[str, Any]:
    keys = ("mean", "std", "interpolation", "resize_mode")
    found = [tag_config(name, tag) for tag in tags_of(name)]
    kinds = [{key: cfg[key] for key in keys if cfg.get(key) is not None} for cfg in found]
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else {}
