"""What open_clip lists, read from its folder: to import it brings torch, torchvision and timm, many seconds."""

from __future__ import annotations

import copy
import functools
import importlib
import json
import sys
import types
from importlib import util
from pathlib import Path
from typing import Any, Final

from twinlens.training.export.errors import ExportError

_LIBRARY: Final = "open_clip"
_ALIAS: Final = "_open_clip_without_models"
_PARTS = ("embed_dim", "vision_cfg", "text_cfg")
_INSTALL_HINT = "pip install 'twinlens[train]'"


def model_configs() -> dict[str, dict[str, Any]]:
    """The model configurations by name; those that a program added, too, where open_clip is loaded already.

    Raises:
        ExportError: if open_clip is not installed.
    """
    if _LIBRARY in sys.modules:
        library: Any = sys.modules[_LIBRARY]
        return {name: library.get_model_config(name) for name in library.list_models()}
    return copy.deepcopy(_configs_of(_folder()))


def pretrained() -> Any:
    """The module `open_clip.pretrained`: tags, where their weights are, and how they are downloaded.

    Raises:
        ExportError: if open_clip is not installed.
    """
    if _LIBRARY not in sys.modules:
        try:
            return _pretrained_of(_folder())
        except ImportError:  # another version may ask for more of its package
            pass
    return importlib.import_module(f"{_LIBRARY}.pretrained")


def tag_config(model: str, tag: str) -> dict[str, Any]:
    """What open_clip lists for a tag: `url` or `hf_hub`, mean, deviation, …; empty where it lists none."""
    return dict(pretrained().get_pretrained_cfg(model, tag) or {})


def tags_of(model: str) -> list[str]:
    """The tags of a model's published weights."""
    return list(pretrained().list_pretrained_tags_by_model(model))


def _folder() -> Path:
    spec = util.find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise ExportError(f"models of open_clip need open_clip: {_INSTALL_HINT}")
    return Path(spec.origin).parent


@functools.cache
def _configs_of(folder: Path) -> dict[str, dict[str, Any]]:
    loaded = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("model_configs/*.json")}
    return {name: loaded[name] for name in sorted(loaded) if all(part in loaded[name] for part in _PARTS)}


@functools.cache
def _pretrained_of(folder: Path) -> Any:
    """The module alone, in a package of another name that runs nothing of its own."""
    package = types.ModuleType(_ALIAS)
    package.__path__ = [str(folder)]
    sys.modules[_ALIAS] = package
    # It asks for safetensors with torch, only to read what is read elsewhere here, and goes on without.
    unwanted = "safetensors.torch"
    hide = unwanted not in sys.modules
    if hide:
        sys.modules[unwanted] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(f"{_ALIAS}.pretrained")
    finally:
        if hide:
            sys.modules.pop(unwanted, None)
