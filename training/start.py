"""What a run starts from: fresh weights, or a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.checkpoint import DualEncoderSpec, build_model, load_checkpoint
from twinlens.training.data.vocabulary import learn_tokenizer
from twinlens.training.errors import ConfigError
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.positions import spread_positions
from twinlens.training.run_checkpoint import checkpoint_of, space_of
from twinlens.training.sections.model import ModelConfig
from twinlens.training.towers.two_towers import INITIAL_LOG_SCALE


@dataclasses.dataclass(frozen=True)
class Scratch:
    """Fresh weights in the architecture of `model_cfg`; the vocabulary is learned from the captions.

    Attributes:
        config: The model's section of the configuration.
        model_cfg: An open_clip model configuration.
        preprocess: From decoded RGB to the image tower's input.
        step: Optimiser steps behind the weights.
        backbone: Trained weights for the image tower's backbone, where there are some.
    """

    config: ModelConfig
    model_cfg: dict[str, Any]
    preprocess: PreprocessSpec
    step: int = 0
    backbone: Backbone | None = None

    def build(
        self, captions: Sequence[str], *, log_scale: float = INITIAL_LOG_SCALE, bias: float | None = None
    ) -> tuple[DualEncoderSpec, nn.Module]:
        """Learns the vocabulary, then builds towers of its size.

        Args:
            captions: Of the data.
            log_scale: Logarithm of the factor on cosines to start with.
            bias: Of the logits to start with, where the loss has one; None: the model has none.

        Raises:
            ConfigError: if `position_std` does not fit the architecture, or the context has no usable length.
            CheckpointError: if open_clip cannot build the model.
            DataError: if the captions hold no words.
        """
        tokenizer_json, size = learn_tokenizer(captions, vocabulary_size=self.config.vocabulary_size)
        text_cfg = {"context_length": 77, **self.model_cfg["text_cfg"], "vocab_size": size}
        if text_cfg.get("pool_type") == "eos":
            text_cfg["eos_id"] = size - 1
        # The loss decides: a model with a bias that was not trained would be taken for SigLIP's when it is exported.
        model_cfg = {
            **self.model_cfg,
            "text_cfg": text_cfg,
            "init_logit_scale": log_scale,
            "init_logit_bias": bias,
        }
        try:
            text = TextSpec(
                context_length=text_cfg["context_length"], pad_id=0, pad_to_context=True, attention_mask=False
            )
        except ValidationError as error:
            raise ConfigError(f"model.config.text_cfg.context_length: {error.errors()[0]['msg']}") from error
        spec = DualEncoderSpec(model_cfg, self.preprocess, text, tokenizer_json, self.config.name or "clip")
        model: Any = build_model(spec)
        if self.backbone is not None:
            model.visual.backbone.load_state_dict(self.backbone.state_dict())
        if self.config.position_std is not None:
            try:
                spread_positions(model, self.config.position_std)
            except ValueError as error:
                raise ConfigError(str(error)) from error
        return spec, model


@dataclasses.dataclass(frozen=True)
class Parent:
    """A checkpoint to go on from, with its architecture, preprocessing and tokenizer.

    Attributes:
        spec: What its model is.
        model: With its weights.
        step: Optimiser steps behind the weights.
        space_id: Of the bundle that it came with; empty where it came from a run.
    """

    spec: DualEncoderSpec
    model: nn.Module
    step: int
    space_id: str = ""

    @property
    def preprocess(self) -> PreprocessSpec:
        """The checkpoint's."""
        return self.spec.preprocess

    def build(
        self,
        captions: Sequence[str],  # noqa: ARG002 - it has its words
        *,
        log_scale: float = INITIAL_LOG_SCALE,
        bias: float | None = None,
    ) -> tuple[DualEncoderSpec, nn.Module]:
        """The model in training mode: Lightning leaves the mode to us.

        It goes on with its own scale and bias, unless the loss wants a bias and it has none, or the other way round.

        Args:
            captions: Of the data.
            log_scale: What it starts with where the loss is of the other kind.
            bias: Likewise; None: the loss has none.
        """
        model: Any = self.model.train()
        own = getattr(model, "logit_bias", None)
        if (own is None) == (bias is None):
            return self.spec, model
        shape = model.logit_scale.shape
        model.logit_scale = nn.Parameter(torch.full(shape, log_scale))
        model.logit_bias = None if bias is None else nn.Parameter(torch.full(shape, bias))
        model_cfg = {**self.spec.model_cfg, "init_logit_scale": log_scale, "init_logit_bias": bias}
        return dataclasses.replace(self.spec, model_cfg=model_cfg), model


def start_of(config: ModelConfig) -> Scratch | Parent:
    """Loads the checkpoint, or finds the architecture; nothing is built yet.

    Raises:
        ConfigError: if open_clip knows no such model, or the model's configuration cannot be trained from scratch.
        CheckpointError: if the checkpoint cannot be used.
    """
    if config.from_checkpoint is not None:
        checkpoint, space_id = checkpoint_of(config.from_checkpoint), space_of(config.from_checkpoint)
        spec, model, meta = load_checkpoint(checkpoint)
        spec = spec if config.name is None else dataclasses.replace(spec, name=config.name)
        return Parent(spec, model, meta.step, space_id)
    model_cfg = config.config
    if model_cfg is None:
        import open_clip  # noqa: PLC0415 - seconds, and only for named models

        model_cfg = open_clip.get_model_config(config.open_clip)
        if model_cfg is None:
            raise ConfigError(f"open_clip knows no model {config.open_clip!r}")
    if config.image_checkpoint is not None:
        return _from_image_encoder(config, config.image_checkpoint, model_cfg)
    parts = [model_cfg.get("vision_cfg"), model_cfg.get("text_cfg")]
    if "embed_dim" not in model_cfg or not all(isinstance(part, dict) for part in parts):
        raise ConfigError("model.config must have embed_dim, vision_cfg and text_cfg, the last two tables")
    _refuse_hugging_face(model_cfg)
    size = model_cfg["vision_cfg"].get("image_size", 224)
    if not isinstance(size, int):
        raise ConfigError(f"model.config.vision_cfg.image_size must be one number, found {size!r}")
    try:
        preprocess = PreprocessSpec(size=size, resize_size=size, mean=config.mean, std=config.std)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"model: {first.get('ctx', {}).get('error') or first['msg']}") from error
    return Scratch(config, model_cfg, preprocess)


def _from_image_encoder(config: ModelConfig, path: Path, model_cfg: dict[str, Any]) -> Scratch:
    spec, backbone, _ = load_image_checkpoint(checkpoint_of(path))
    if "embed_dim" not in model_cfg or not isinstance(model_cfg.get("text_cfg"), dict):
        raise ConfigError("model.config must have embed_dim and text_cfg, the last a table")
    _refuse_hugging_face(model_cfg)
    vision_cfg = {"image_size": spec.preprocess.size, "backbone": spec.backbone.model_dump(mode="json")}
    return Scratch(config, {**model_cfg, "vision_cfg": vision_cfg}, spec.preprocess, backbone=backbone)


def _refuse_hugging_face(model_cfg: dict[str, Any]) -> None:
    if "hf_model_name" in model_cfg["text_cfg"]:
        raise ConfigError("towers of Hugging Face cannot be trained from scratch here; name another model")
