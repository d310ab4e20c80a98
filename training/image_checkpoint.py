"""One checkpoint file of an image encoder: the exported branch's weights and everything needed to build and feed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta, load_weights, meta_of, read_payload, write_payload
from twinlens.training.errors import CheckpointError, ConfigError, first_line
from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

IMAGE_KIND = "image"


@dataclass(frozen=True)
class ImageEncoderSpec:
    """What an image encoder is, apart from its weights.

    Attributes:
        backbone: The timm model.
        preprocess: From decoded RGB to its input.
        method: What trained it.
        name: What a person calls the model.
    """

    backbone: BackboneConfig
    preprocess: PreprocessSpec
    method: str
    name: str


def save_image_checkpoint(path: Path, spec: ImageEncoderSpec, backbone: Backbone, meta: CheckpointMeta) -> None:
    """Writes the checkpoint so that `path` holds either the old file or the whole new one, also after a crash.

    Raises:
        CheckpointError: if the file cannot be written, or the weights are not finite. The old file stays.
    """
    described = {
        "kind": IMAGE_KIND,
        "backbone": spec.backbone.model_dump(mode="json"),
        "preprocess": spec.preprocess.model_dump(mode="json"),
        "method": spec.method,
        "name": spec.name,
    }
    write_payload(path, json.dumps(described), backbone.trunk, meta)


def holds_image_encoder(payload: Mapping[str, Any], path: Path) -> bool:
    """Whether a checkpoint is of an image encoder alone.

    Args:
        payload: See `read_payload`.
        path: Of the file, for errors.

    Raises:
        CheckpointError: if its description is damaged.
    """
    return _kind(_described(payload, path)) == IMAGE_KIND


def load_image_checkpoint(path: Path) -> tuple[ImageEncoderSpec, Backbone, CheckpointMeta]:
    """Reads a checkpoint; nothing in the file is executed.

    Returns:
        The spec, the backbone in evaluation mode on the CPU, and the meta data.

    Raises:
        CheckpointError: if the file is missing, not one of ours, of a dual encoder, damaged, or its weights do not fit.
    """
    return image_encoder_in(read_payload(path), path)


def image_encoder_in(payload: Mapping[str, Any], path: Path) -> tuple[ImageEncoderSpec, Backbone, CheckpointMeta]:
    """What `load_image_checkpoint` gives, of a file that is read already.

    Args:
        payload: See `read_payload`.
        path: Of the file, for errors.

    Raises:
        CheckpointError: if it is of a dual encoder, its description is damaged, or its weights do not fit.
    """
    described = _described(payload, path)
    if _kind(described) != IMAGE_KIND:
        held = "a text" if _kind(described) == "text" else "a dual"
        raise CheckpointError(f"{path} holds {held} encoder, not an image encoder alone")
    try:
        spec = ImageEncoderSpec(
            BackboneConfig.model_validate(described["backbone"]),
            PreprocessSpec.model_validate(described["preprocess"]),
            str(described["method"]),
            str(described["name"]),
        )
        meta = meta_of(payload)
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} has a damaged description: {first_line(error)}") from error
    try:
        backbone = build_backbone(spec.backbone, spec.preprocess.size)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    load_weights(backbone.trunk, payload["state_dict"], origin=str(path))
    return spec, backbone.eval(), meta


def _described(payload: Mapping[str, Any], path: Path) -> dict[str, Any]:
    try:
        described = json.loads(payload["spec"])
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path} has a damaged description: {first_line(error)}") from error
    if not isinstance(described, dict):
        raise CheckpointError(f"{path} has a damaged description: it is no object")
    return described


def _kind(described: Mapping[str, Any]) -> str:
    return str(described.get("kind", "dual"))
