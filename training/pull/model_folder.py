"""A folder with a model, local or of the hub: where it is, and which files it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twinlens.training.export.errors import ExportError
from twinlens.training.hub import hub_snapshot
from twinlens.training.pull.open_clip_config import CONFIG_NAME

_PATTERNS = ("*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*/*.json", "*/*.safetensors", "*/*.bin")
OPEN_CLIP_WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "model.safetensors",
    "open_clip_pytorch_model.bin",
    "pytorch_model.bin",
)
TIMM_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`; empty where there is none but `modules.json`.

    Raises:
        ExportError: if it is missing or is not JSON.
    """
    path = folder / "config.json"
    if not path.is_file() and (folder / "modules.json").is_file():
        return {}
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(
            f"{folder} holds no config.json, {CONFIG_NAME} or modules.json: not the folder of a model"
        ) from error
    except ValueError as error:
        raise ExportError(f"{path} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise ExportError(f"{path} is not a model's configuration")
    return loaded


def model_folder(model: str) -> Path:
    """The folder a user names, or a repository's, downloaded.

    Raises:
        ExportError: if there is none.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise ExportError(f"{path} is a file; name the folder, with its config.json and tokenizer")
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise ExportError(f"no folder {path}, and the name of a repository is written OWNER/NAME")
    return hub_snapshot(model, _PATTERNS, "download the repository elsewhere and name its folder: hf:/path/to/folder")


def first_of(folder: Path, names: tuple[str, ...]) -> Path:
    """The first of these files of weights that is there.

    Raises:
        ExportError: if none is.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise ExportError(f"{folder} holds no weights ({', '.join(names)})")
