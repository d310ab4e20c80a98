"""timm's image models without their classifier: a picture's pooled features, an image-only bundle."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta, load_weights
from twinlens.training.errors import CheckpointError, ConfigError, first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.export.fused_branches import fuse_branches
from twinlens.training.export.towers import ImageExport, frozen
from twinlens.training.hub import hub_file
from twinlens.training.image_checkpoint import ImageEncoderSpec, save_image_checkpoint
from twinlens.training.json_object import read_json_object
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.progress import Say
from twinlens.training.pull.checkpoints import Weights, fit_weights, read_weights, without_prefix
from twinlens.training.pull.preprocessing import from_timm
from twinlens.training.pull.pulled import RANDOM_WEIGHTS, PulledTowers
from twinlens.training.pull.source import Choices, Source, weights_file, weights_label
from twinlens.training.pull.timm_listing import check_name, refuse_text_choices

_TAGS_SHOWN = 6


def timm_model(source: Source, choices: Choices, say: Say) -> PulledTowers:
    """Builds `NAME[.TAG]` with published weights (a tag), a checkpoint's, or random ones.

    Preprocessing is timm's own evaluation transform of the tag (of the default tag, where none is named), at the size
    timm evaluates at.

    Raises:
        ExportError: if there is no such model or tag, the weights do not fit, or the model gives no pooled features.
    """
    refuse_text_choices(choices)
    path = weights_file(source.weights)
    name, _, tag = source.model.partition(".")
    if source.weights and path is None:
        tag = source.weights
    pretrained_cfg = _pretrained_cfg(name, tag)
    if path is not None:
        pretrained_cfg |= _beside(path, name)
        weights = read_weights(path)
    elif tag:
        weights = read_weights(_published(name, tag, pretrained_cfg))
    else:
        say(RANDOM_WEIGHTS.format(source=f"timm:{name}"))
        weights = None
    model = _create(name)
    if weights is not None:
        _fit(model, weights, pretrained_cfg, choices.weights_prefix)
    label = weights_label(str(path)) if path is not None else tag or "random"
    method = f"timm {name}" + (f":{label}" if weights is not None else ", random weights")
    tower = _tower(model, name, pretrained_cfg)
    return PulledTowers(
        tower, None, f"{name}-{label}", method, keep=_keep(model, name, label, tower.preprocess, method)
    )


def _keep(
    model: nn.Module, name: str, label: str, preprocess: PreprocessSpec, method: str
) -> Callable[[Path], None] | None:
    """Writes the checkpoint of an image encoder, where training builds the same network."""
    try:
        backbone = build_backbone(BackboneConfig(timm=name), preprocess.size)
        load_weights(backbone.trunk, model.state_dict(), origin=name)
    except (ConfigError, CheckpointError):  # at another size than it was built for, positions do not fit
        return None
    spec = ImageEncoderSpec(backbone.config, preprocess, method, f"{name}-{label}")
    meta = CheckpointMeta(lineage=Lineage(method=method))
    return partial(save_image_checkpoint, spec=spec, backbone=backbone, meta=meta)


def _pretrained_cfg(name: str, tag: str) -> dict[str, Any]:
    import timm  # noqa: PLC0415 - seconds
    from timm.models import get_pretrained_cfg  # noqa: PLC0415

    check_name(name)
    if "naflex" in name:
        raise ExportError(f"{name} takes pictures of any shape (NaFlex); a bundle's tower has one fixed size")
    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{name}.*")]
    if tag and tag not in tags:
        known = ", ".join(tags[:_TAGS_SHOWN]) + (", …" if len(tags) > _TAGS_SHOWN else "")
        raise ExportError(f"{name} has no published weights {tag!r}; known: {known or 'none'}")
    found: Any = get_pretrained_cfg(f"{name}.{tag}" if tag else name, allow_unregistered=True)
    return dict(found.to_dict()) if found is not None else {}


def _beside(path: Path, name: str) -> dict[str, Any]:
    """What a `config.json` in the checkpoint's folder says, as in repositories of timm models."""
    loaded = read_json_object(path.parent / "config.json")
    if loaded.get("architecture") != name:
        return {}
    stated: dict[str, Any] = loaded.get("pretrained_cfg") or {}
    return stated


def _published(name: str, tag: str, pretrained_cfg: Mapping[str, Any]) -> Path:
    instead = f"with the file at hand: twinlens pull timm:{name}.{tag}:/path/to/model.safetensors"
    repository = pretrained_cfg.get("hf_hub_id")
    if not repository:
        raise ExportError(f"timm lists no repository for {name}.{tag}; {instead}")
    repository = str(repository)
    if repository.endswith("/"):  # timm completes such names by the model's
        repository += f"{name}.{tag}"
    own = pretrained_cfg.get("hf_hub_filename")
    return hub_file(repository, [str(own)] if own else ["model.safetensors", "pytorch_model.bin"], instead)


def _create(name: str) -> nn.Module:
    import timm  # noqa: PLC0415

    try:
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    except (TypeError, ValueError, KeyError, AssertionError, RuntimeError) as error:
        raise ExportError(f"timm cannot build {name} without its classifier: {first_line(error)}") from error
    return model


def _fit(model: nn.Module, weights: Weights, pretrained_cfg: Mapping[str, Any], prefix: str | None) -> None:
    """Loads a checkpoint with or without its classifier, in timm's names or those of the code timm took it from."""
    own = model.state_dict()
    classifier = pretrained_cfg.get("classifier") or ()
    dropped = [f"{part}." for part in ([classifier] if isinstance(classifier, str) else classifier)]
    tensors = without_prefix(weights, own, prefix)
    if not own.keys() <= tensors.keys():
        tensors = _renamed(model, tensors)
    fit_weights(model, Weights(tensors, weights.origin), prefix="", drop=dropped)


def _renamed(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """By timm's own filter for the model. It may resample position embeddings too; then shapes change: refused."""
    filter_fn = getattr(importlib.import_module(type(model).__module__), "checkpoint_filter_fn", None)
    if filter_fn is None:
        return tensors
    try:
        renamed = dict(filter_fn(dict(tensors), model))
    except Exception:  # written for known checkpoints; what is wrong with others, the comparison of names tells
        return tensors
    for name, tensor in tensors.items():
        if "pos_embed" in name and name in renamed and renamed[name].shape != tensor.shape:
            return tensors
    return renamed


def _tower(model: nn.Module, name: str, pretrained_cfg: Mapping[str, Any]) -> ImageExport:
    preprocess = _preprocess(pretrained_cfg)
    model = frozen(model)
    try:
        with torch.no_grad():
            output = model(torch.zeros(2, 3, preprocess.size, preprocess.size))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ExportError(
            f"{name} does not take pictures of {preprocess.size}x{preprocess.size}: {first_line(error)}"
        ) from error
    if not isinstance(output, Tensor) or output.ndim != 2:
        raise ExportError(f"{name} gives no pooled features, one row a picture")
    pool = str(getattr(model, "global_pool", "") or "")
    pooling = pool if pool.isalnum() else "the model's own"
    return ImageExport(fuse_branches(model), preprocess, architecture=name, pooling=pooling)


def _preprocess(pretrained_cfg: Mapping[str, Any]) -> PreprocessSpec:
    from timm import data  # noqa: PLC0415

    # At the size at which timm evaluates the weights, which for many is larger than that of training.
    use_test_size = not pretrained_cfg.get("fixed_input_size", False)
    resolve: Any = data.resolve_data_config  # type: ignore[attr-defined]
    return from_timm(resolve({}, pretrained_cfg=dict(pretrained_cfg), use_test_size=use_test_size))
