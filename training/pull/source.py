"""What a user may name: a model of one of three families, with a published tag or a file of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from twinlens.training.export.errors import ExportError

Family = Literal["open_clip", "timm", "hf"]
_PREFIXES: dict[str, Family] = {"open_clip": "open_clip", "timm": "timm", "hf": "hf", "hf-hub": "hf", "local-dir": "hf"}
WEIGHT_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".jit")


@dataclass(frozen=True)
class Source:
    """What to pull.

    Attributes:
        family: Which code base builds the model.
        model: A model's name; for `hf` a folder, or a repository's name on the hub.
        weights: A published tag (`openai`), the path of a checkpoint, or None for random weights. A folder or a
            repository of `hf` brings its own.
    """

    family: Family
    model: str
    weights: str | None = None

    def __str__(self) -> str:
        """As a user writes it."""
        prefix = "" if self.family == "open_clip" else f"{self.family}:"
        return f"{prefix}{self.model}" + (f":{self.weights}" if self.weights else "")


@dataclass(frozen=True)
class Choices:
    """What a user says beside the source.

    Attributes:
        config: An open_clip model configuration (JSON), for models that open_clip does not list.
        tokenizer: A folder, a tokenizer file or a repository's name, instead of the tokenizer the model names.
        weights_prefix: What the wanted tensors' names start with, where a checkpoint holds several models.
    """

    config: Path | None = None
    tokenizer: str | None = None
    weights_prefix: str | None = None


def parse_source(text: str) -> Source:
    """Reads `NAME[:TAG|:FILE]`, `timm:NAME[.TAG][:FILE]` or `hf:FOLDER|REPOSITORY`.

    Raises:
        ExportError: if the name is empty.
    """
    first, colon, rest = text.partition(":")
    if colon and first in _PREFIXES:
        family, named = _PREFIXES[first], rest
    else:
        family, named = "open_clip", text
    if family == "hf":
        model, weights = named, ""
    else:
        model, _, weights = named.partition(":")
    if not model:
        raise ExportError(
            f"no model name in {text!r}: write NAME, NAME:TAG, NAME:/path/to/checkpoint.pt, timm:NAME or hf:FOLDER"
        )
    return Source(family, model, weights or None)


def weights_file(weights: str | None) -> Path | None:
    """The checkpoint a user names, or None for random weights and what is written like a tag.

    Raises:
        ExportError: if it is written like a path and there is no such file.
    """
    if weights is None:
        return None
    path = Path(weights).expanduser()
    if path.is_file():
        return path
    if path.suffix in WEIGHT_SUFFIXES or "/" in weights:
        raise ExportError(f"no checkpoint at {path}")
    return None


def weights_label(weights: str | None) -> str:
    """A tag as it is; of a path the file's name only: bundles travel, folders of their maker's machine do not."""
    if weights is None:
        return "random"
    path = Path(weights)
    return path.stem if path.suffix in WEIGHT_SUFFIXES or "/" in weights else weights
