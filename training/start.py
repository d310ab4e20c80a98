"""What a run starts from: fresh weights, or a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.checkpoint import DualEncoderSpec, build_model, load_checkpoint
from twinlens.training.errors import ConfigError
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.positions import spread_positions
from twinlens.training.run_checkpoint import checkpoint_of, space_of
from twinlens.training.sections.model import ModelConfig
from twinlens.training.text_checkpoint import TextEncoderSpec, load_text_checkpoint
from twinlens.training.text_start import learned_text, take_weights, trained_text
from twinlens.training.towers.fit import check_fit
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
        encoder: A trained text encoder and what it is, where there is one; its vocabulary stays.
    """

    config: ModelConfig
    model_cfg: dict[str, Any]
    preprocess: PreprocessSpec
    step: int = 0
    backbone: Backbone | None = None
    encoder: tuple[TextEncoderSpec, nn.Module] | None = None

    @property
    def learns_words(self) -> bool:
        """Whether captions are needed to build it."""
        return self.encoder is None

    def image_tower(self) -> nn.Module:
        """One as `build` will make it, before there are captions; what is drawn for it is drawn again.

        Raises:
            ConfigError, CheckpointError: see `build`.
        """
        with torch.random.fork_rng(devices=[]):
            return self.build(("any",))[1].get_submodule("visual")

    def build(
        self, captions: Sequence[str], *, log_scale: float = INITIAL_LOG_SCALE, bias: float | None = None
    ) -> tuple[DualEncoderSpec, nn.Module]:
        """Learns the vocabulary where there is none yet, then builds towers of its size.

        Args:
            captions: Of the data.
            log_scale: Logarithm of the factor on cosines to start with.
            bias: Of the logits to start with, where the loss has one; None: the model has none.

        Raises:
            ConfigError: if `position_std` does not fit the architecture, the context has no usable length, or the
                towers do not fit each other or the size of the pictures.
            CheckpointError: if open_clip cannot build the model.
            DataError: if the captions hold no words.
        """
        if self.encoder is not None:
            start = trained_text(self.encoder[0])
        else:
            start = learned_text(self.model_cfg["text_cfg"], captions, vocabulary_size=self.config.vocabulary_size)
        # The loss decides: a model with a bias that was not trained would be taken for SigLIP's when it is exported.
        model_cfg = {
            **self.model_cfg,
            "text_cfg": start.text_cfg,
            "init_logit_scale": log_scale,
            "init_logit_bias": bias,
        }
        name = self.config.name or "clip"
        spec = DualEncoderSpec(model_cfg, self.preprocess, start.text, start.tokenizer_json, name)
        model: Any = build_model(spec)
        if self.backbone is not None:
            model.visual.backbone.load_state_dict(self.backbone.state_dict())
        if self.encoder is not None:
            take_weights(model.text, self.encoder[1])
        if self.config.position_std is not None:
            try:
                spread_positions(model, self.config.position_std)
            except ValueError as error:
                raise ConfigError(str(error)) from error
        check_fit(model, self.preprocess, start.text)
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
    def learns_words(self) -> bool:
        """It has its own."""
        return False

    def image_tower(self) -> nn.Module:
        """The checkpoint's."""
        return self.model.get_submodule("visual")

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
    encoder = None
    if config.text_checkpoint is not None:
        found, tower, _ = load_text_checkpoint(checkpoint_of(config.text_checkpoint))
        encoder = found, tower
        model_cfg = {**model_cfg, "text_cfg": {}}
    backbone = None
    if config.image_checkpoint is not None:
        image, backbone, _ = load_image_checkpoint(checkpoint_of(config.image_checkpoint))
        described = image.backbone.model_dump(mode="json")
        model_cfg = {**model_cfg, "vision_cfg": {"image_size": image.preprocess.size, "backbone": described}}
    _check_parts(config, model_cfg)
    preprocess = _preprocess(config, model_cfg) if config.image_checkpoint is None else image.preprocess
    return Scratch(config, model_cfg, preprocess, backbone=backbone, encoder=encoder)


def _check_parts(config: ModelConfig, model_cfg: dict[str, Any]) -> None:
    wanted = [
        *(["vision_cfg"] if config.image_checkpoint is None else []),
        *(["text_cfg"] if config.text_checkpoint is None else []),
    ]
    if "embed_dim" not in model_cfg or not all(isinstance(model_cfg.get(part), dict) for part in wanted):
        tables = {0: "", 1: ", the last a table", 2: ", the last two tables"}[len(wanted)]
        named = ["embed_dim", *wanted]
        listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
        raise ConfigError(f"model.config must have {listed}{tables}")
    if "hf_model_name" in model_cfg["text_cfg"]:
        raise ConfigError(
            "open_clip reads this text tower from Hugging Face; describe one by text_cfg.transformers, or pull one "
            "(`twinlens pull hf:…`) and name the bundle as text_checkpoint"
        )


def _preprocess(config: ModelConfig, model_cfg: dict[str, Any]) -> PreprocessSpec:
    size = model_cfg["vision_cfg"].get("image_size", 224)
    if not isinstance(size, int) or size < 1:
        raise ConfigError(f"model.config.vision_cfg.image_size must be one number above 0, found {size!r}")
    try:
        return PreprocessSpec(size=size, resize_size=size, mean=config.mean, std=config.std)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"model: {first.get('ctx', {}).get('error') or first['msg']}") from error
