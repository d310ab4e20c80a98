"""One checkpoint file of a text encoder alone: its weights and everything needed to build and feed it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import TextSpec
from twinlens.training.checkpoint import CheckpointMeta, load_weights, meta_of, read_payload, write_payload
from twinlens.training.errors import CheckpointError, ConfigError, TrainingRoomError, first_line
from twinlens.training.towers.registry import own_text_tower

TEXT_KIND = "text"


@dataclass(frozen=True)
class TextEncoderSpec:
    """What a text encoder is, apart from its weights.

    Attributes:
        text_cfg: A tower of the registry, without a projection.
        text: From a string to the tower's input.
        tokenizer_json: The text of the Hugging Face `tokenizers` file.
        name: What a person calls the model.
    """

    text_cfg: dict[str, Any]
    text: TextSpec
    tokenizer_json: str
    name: str


def save_text_checkpoint(path: Path, spec: TextEncoderSpec, tower: nn.Module, meta: CheckpointMeta) -> None:
    """Writes the checkpoint so that `path` holds either the old file or the whole new one, also after a crash.

    Raises:
        CheckpointError: if the file cannot be written, or the weights are not finite. The old file stays.
    """
    described = {
        "kind": TEXT_KIND,
        "text_cfg": spec.text_cfg,
        "text": spec.text.model_dump(mode="json"),
        "tokenizer_json": spec.tokenizer_json,
        "name": spec.name,
    }
    write_payload(path, json.dumps(described), tower, meta)


def load_text_checkpoint(path: Path) -> tuple[TextEncoderSpec, nn.Module, CheckpointMeta]:
    """Reads a checkpoint; nothing in the file is executed.

    Returns:
        The spec, the tower in evaluation mode on the CPU, and the meta data.

    Raises:
        CheckpointError: if the file is missing, not one of ours, of another kind, damaged, or its weights do not fit.
    """
    payload = read_payload(path)
    try:
        described = json.loads(payload["spec"])
        if described.get("kind") != TEXT_KIND:
            raise CheckpointError(f"{path} holds no text encoder alone; name a bundle of one (`twinlens pull hf:…`)")
        spec = TextEncoderSpec(
            text_cfg=described["text_cfg"],
            text=TextSpec.model_validate(described["text"]),
            tokenizer_json=described["tokenizer_json"],
            name=described["name"],
        )
        meta = meta_of(payload)
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} has a damaged description: {first_line(error)}") from error
    try:
        tower = own_text_tower(spec.text_cfg, 1, spec.text)
    except CheckpointError:
        raise
    except (TrainingRoomError, ConfigError, ValidationError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the text tower of {spec.name!r} cannot be built: {first_line(error)}") from error
    if tower is None:
        raise CheckpointError(f"{path} describes no text tower that this version knows")
    load_weights(tower, payload["state_dict"], origin=str(path))
    return spec, tower.eval(), meta
