"""One checkpoint file: the weights of a dual encoder and everything needed to build and feed it again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import Lineage, PreprocessSpec, TextSpec
from twinlens.index.durable import sync
from twinlens.training.errors import CheckpointError, first_line
from twinlens.training.finite import first_not_finite
from twinlens.training.torch_file import NotATorchFile, is_plain, read_torch_file

CHECKPOINT_FORMAT = 1


@dataclass(frozen=True)
class DualEncoderSpec:
    """What a dual encoder is, apart from its weights.

    Attributes:
        model_cfg: An open_clip model configuration (`embed_dim`, `vision_cfg`, `text_cfg`, …). Where `vision_cfg` or
            `text_cfg` describes a tower of another kind (see `towers.registry`), that one takes open_clip's place.
        preprocess: From decoded RGB to the image tower's input.
        text: From a string to the text tower's input.
        tokenizer_json: The text of the Hugging Face `tokenizers` file.
        name: What a person calls the model.
    """

    model_cfg: dict[str, Any]
    preprocess: PreprocessSpec
    text: TextSpec
    tokenizer_json: str
    name: str


@dataclass(frozen=True)
class CheckpointMeta:
    """How the weights came to be.

    Attributes:
        step: Optimiser steps behind the weights, those of earlier runs included.
        lineage: Method, digests of configuration and data, the parent's space, package versions.
        metrics: The last measured values.
    """

    step: int = 0
    lineage: Lineage = field(default_factory=Lineage)
    metrics: dict[str, float] = field(default_factory=dict)


def build_model(spec: DualEncoderSpec) -> nn.Module:
    """Builds the model of `spec` with fresh weights; nothing is downloaded.

    Returns:
        See `build_towers`.

    Raises:
        CheckpointError: if it cannot be built.
    """
    from twinlens.training.towers.build import build_towers  # noqa: PLC0415 - pulls in open_clip and timm: seconds

    return build_towers(spec.model_cfg, spec.preprocess, spec.text, spec.name)


def save_checkpoint(path: Path, spec: DualEncoderSpec, model: nn.Module, meta: CheckpointMeta) -> None:
    """Writes the checkpoint so that `path` holds either the old file or the whole new one, also after a crash.

    Raises:
        CheckpointError: if the file cannot be written (disk full, no such folder), or the weights are not finite. The
            old file stays.
    """
    described = {
        "model_cfg": spec.model_cfg,
        "preprocess": spec.preprocess.model_dump(mode="json"),
        "text": spec.text.model_dump(mode="json"),
        "tokenizer_json": spec.tokenizer_json,
        "name": spec.name,
    }
    write_payload(path, json.dumps(described), model, meta)


def write_payload(path: Path, spec_json: str, model: nn.Module, meta: CheckpointMeta) -> None:
    """Writes weights with the description of what they belong to; `path` holds the old file or the whole new one.

    Raises:
        CheckpointError: if the file cannot be written, or the weights are not finite. The old file stays.
    """
    broken = first_not_finite(model.state_dict())
    if broken is not None:
        raise CheckpointError(f"{path} is not written: {broken} is not finite; lower learning_rate or use fp32")
    payload = {
        "format": CHECKPOINT_FORMAT,
        "spec": spec_json,
        "meta": json.dumps({**asdict(meta), "lineage": meta.lineage.model_dump(mode="json")}),
        "state_dict": {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()},
    }
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(payload, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {_why_not_written(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> tuple[DualEncoderSpec, nn.Module, CheckpointMeta]:
    """Reads a checkpoint; nothing in the file is executed (`weights_only=True`).

    Returns:
        The spec, the model in evaluation mode on the CPU, and the meta data.

    Raises:
        CheckpointError: if the file is missing, not one of ours, damaged, or its weights do not fit its spec.
    """
    return dual_encoder_in(read_payload(path), path)


def dual_encoder_in(payload: Mapping[str, Any], path: Path) -> tuple[DualEncoderSpec, nn.Module, CheckpointMeta]:
    """What `load_checkpoint` gives, of a file that is read already.

    Args:
        payload: See `read_payload`.
        path: Of the file, for errors.

    Raises:
        CheckpointError: if its description is damaged or of an image encoder alone, or its weights do not fit its spec.
    """
    try:
        spec_json = json.loads(payload["spec"])
        if "backbone" in spec_json:
            raise CheckpointError(f"{path} holds an image encoder alone; a dual encoder is wanted here")
        if "model_cfg" not in spec_json and "text_cfg" in spec_json:
            raise CheckpointError(f"{path} holds a text encoder alone; a dual encoder is wanted here")
        spec = _spec_in(spec_json)
        meta = meta_of(payload)
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} has a damaged description: {first_line(error)}") from error
    model = build_model(spec)
    load_weights(model, payload["state_dict"], origin=str(path))
    return spec, model.eval(), meta


def _spec_in(described: dict[str, Any]) -> DualEncoderSpec:
    model_cfg, tokenizer_json, name = (described[key] for key in ("model_cfg", "tokenizer_json", "name"))
    if not (isinstance(model_cfg, dict) and isinstance(tokenizer_json, str) and isinstance(name, str)):
        raise TypeError("model_cfg must be a table, tokenizer_json and name texts")
    return DualEncoderSpec(
        model_cfg=model_cfg,
        preprocess=PreprocessSpec.model_validate(described["preprocess"]),
        text=TextSpec.model_validate(described["text"]),
        tokenizer_json=tokenizer_json,
        name=name,
    )


def read_payload(path: Path) -> dict[str, Any]:
    """The parts of a checkpoint file as they were written: `format`, `spec`, `meta`, `state_dict`.

    Raises:
        CheckpointError: if the file is missing, not one of ours, or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        payload = read_torch_file(path)
    except NotATorchFile as error:
        raise CheckpointError(f"{path} is not a readable checkpoint: {error}") from error
    if not isinstance(payload, dict) or not {"format", "spec", "meta", "state_dict"} <= payload.keys():
        raise CheckpointError(f"{path} is not a twinlens checkpoint (import others with `twinlens pull NAME:PATH`)")
    if payload["format"] != CHECKPOINT_FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {payload['format']}; this version reads {CHECKPOINT_FORMAT}"
        )
    _check_weights(path, payload["state_dict"])
    return payload


def _check_weights(path: Path, state: Any) -> None:
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} is damaged: its weights are no tensors with names")
    for name, value in state.items():
        if not (isinstance(name, str) and isinstance(value, torch.Tensor) and is_plain(value)):
            raise CheckpointError(f"{path} is damaged: {name} is no plain tensor")
    broken = first_not_finite(state)
    if broken is not None:
        raise CheckpointError(f"{path} cannot be used: {broken} is not finite")


def meta_of(payload: Mapping[str, Any]) -> CheckpointMeta:
    """How the weights of a file came to be.

    Raises:
        ValueError, KeyError, TypeError: if the description is damaged.
    """
    meta_json = json.loads(payload["meta"])
    return CheckpointMeta(
        step=int(meta_json["step"]),
        lineage=Lineage.model_validate(meta_json["lineage"]),
        metrics=dict(meta_json["metrics"]),
    )


def load_weights(model: nn.Module, state: Mapping[str, torch.Tensor], *, origin: str) -> None:
    """Copies `state` into `model`; every tensor must have its place, its shape and its kind of numbers.

    Raises:
        CheckpointError: naming the first difference, if the weights are of another architecture.
    """
    own = model.state_dict()
    wrong = [f"{k} is missing" for k in own if k not in state]
    wrong += [f"{k} is unknown" for k in state if k not in own]
    wrong += [
        f"{k} has shape {tuple(state[k].shape)} instead of {tuple(own[k].shape)}"
        for k in own
        if k in state and state[k].shape != own[k].shape
    ]
    # Whole numbers in the place of weights are quantised ones, whose scales are elsewhere.
    wrong += [
        f"{k} is {_dtype(state[k])} instead of {_dtype(own[k])}"
        for k in own
        if k in state and own[k].is_floating_point() and not state[k].is_floating_point()
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise CheckpointError(f"{origin} holds weights of another architecture: {wrong[0]}{more}")
    model.load_state_dict(dict(state))


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _why_not_written(error: BaseException) -> str:
    """Where the disk is full, torch tells of positions in the file; the reason is what its writer met before."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return first_line(error)
