"""Weights from a file, put where they belong: nothing is executed, nothing is guessed, nothing is left random."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.training.checkpoint import load_weights
from twinlens.training.errors import CheckpointError, first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.torchscript_archive import is_torchscript, read_torchscript
from twinlens.training.torch_file import is_compressed, is_plain

# Where trainers keep the weights in their checkpoints. An average over the steps comes first: timm evaluates with it.
_NESTED = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "module")
_DEEPEST = 8
# Constants that OpenAI stored among the weights of its archives.
_OPENAI_CONSTANTS = frozenset({"input_resolution", "context_length", "vocab_size"})
# Only training reads these, and older files (OpenAI's too) lack them.
_COUNTERS = "num_batches_tracked"


@dataclass(frozen=True)
class Weights:
    """The tensors of a checkpoint.

    Attributes:
        tensors: By the name the file gives them.
        origin: The file's name, for errors.
        openai: An archive that OpenAI published: its models use quick-GELU whatever their configuration says.
    """

    tensors: Mapping[str, Tensor]
    origin: str
    openai: bool = False


def read_weights(path: Path) -> Weights:
    """Reads a `.safetensors`, a torch file (`weights_only=True`) or a TorchScript archive (as data).

    Raises:
        ExportError: one line, if the file is missing, damaged, holds more than tensors, or is quantised.
    """
    if not path.is_file():
        raise ExportError(f"no checkpoint at {path}")
    openai = False
    if path.suffix == ".safetensors":
        tensors = _read_safetensors(path)
    elif is_torchscript(path):
        tensors = read_torchscript(path)
        openai = tensors.keys() >= _OPENAI_CONSTANTS
        tensors = {name: tensor for name, tensor in tensors.items() if name not in _OPENAI_CONSTANTS}
    else:
        tensors = _unwrapped(_read_torch(path), path)
    if not tensors:
        raise ExportError(f"{path} holds no weights")
    odd = next((name for name, tensor in tensors.items() if not is_plain(tensor)), None)
    if odd is not None:
        raise ExportError(
            f"{path}: {odd} is quantised, sparse, complex or without numbers; name the checkpoint with plain weights"
        )
    return Weights(tensors, path.name, openai)


def fit_weights(model: nn.Module, weights: Weights, *, prefix: str | None = None, drop: Iterable[str] = ()) -> None:
    """Loads the tensors into the model, in the model's dtype; every one must have its place and its shape.

    Wrappers prefix names (`module.` by DataParallel, `model.` by Lightning, `_orig_mod.` by torch.compile): the prefix
    under which the model's tensors are found is taken off, and what stands outside of it (losses, optimisers' copies)
    is left alone.

    Args:
        model: The model.
        weights: The tensors.
        prefix: What the names start with; None: found out.
        drop: Names, or beginnings of names that end with a dot, that the file may hold and the model has no use for.

    Raises:
        ExportError: naming the first tensor that is missing, unknown, or of another shape; or if the file holds several
            models.
    """
    own = model.state_dict()
    tensors = without_prefix(weights, own, prefix)
    dropped = tuple(drop)
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name in own or not any(name == d or (d.endswith(".") and name.startswith(d)) for d in dropped)
    }
    for name, value in own.items():
        if name.endswith(_COUNTERS):
            kept.setdefault(name, value)
    try:
        load_weights(model, kept, origin=weights.origin)
    except (CheckpointError, RuntimeError) as error:
        raise ExportError(f"the weights do not fit: {first_line(error)}") from error


def without_prefix(weights: Weights, own: Mapping[str, Any], prefix: str | None = None) -> dict[str, Tensor]:
    """The tensors under the names the model uses, `own`.

    Raises:
        ExportError: if nothing has the given prefix, or several prefixes fit the model.
    """
    if prefix is None:
        prefix = _prefix(weights, own)
    found = {name.removeprefix(prefix): t for name, t in weights.tensors.items() if name.startswith(prefix)}
    if not found:
        raise ExportError(f"{weights.origin} holds no weights whose names start with {prefix!r}")
    return found


def _prefix(weights: Weights, own: Mapping[str, Any]) -> str:
    """Under which prefix most of the model's own names are found."""
    if not own or any(name in weights.tensors for name in own):
        return ""
    counts: dict[str, int] = {}
    names = list(own)
    by_last = {name.rpartition(".")[2] for name in names}
    for name in weights.tensors:
        if name.rpartition(".")[2] not in by_last:
            continue
        for wanted in names:
            if name.endswith(f".{wanted}"):
                start = name[: -len(wanted)]
                counts[start] = counts.get(start, 0) + 1
    best = max(counts.values(), default=0)
    if best < len(names) / 2:
        return ""
    fitting = sorted(start for start, count in counts.items() if count == best)
    if len(fitting) > 1:
        raise ExportError(
            f"{weights.origin} holds {len(fitting)} models that fit ({', '.join(fitting)}): choose one with "
            f"--weights-prefix {fitting[0]}"
        )
    return fitting[0]


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ExportError(f"{path} is not a readable safetensors file: {first_line(error)}") from error


def _read_torch(path: Path) -> Any:
    if is_compressed(path):
        raise ExportError(f"{path} is compressed, and might fill the memory; save it with torch.save or as safetensors")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # remarks about foreign pickles, which are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged, it may raise anything
        reason, _, _ = first_line(error).partition(". ")  # torch goes on with advice to switch the check off
        raise ExportError(
            f"{path} cannot be read as plain weights ({reason}); save the model's state_dict, or safetensors"
        ) from error


def _unwrapped(loaded: Any, path: Path) -> dict[str, Tensor]:
    for _ in range(_DEEPEST):  # a dictionary may hold itself
        if not isinstance(loaded, Mapping):
            break
        nested = next((key for key in _NESTED if isinstance(loaded.get(key), Mapping)), None)
        if nested is None:
            break
        loaded = loaded[nested]
    if not isinstance(loaded, Mapping):
        raise ExportError(f"{path} holds no state_dict but {type(loaded).__name__}")
    # Beside the weights, trainers may keep numbers and texts.
    return {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
