"""What an open_clip configuration asks for, and what of it cannot be a bundle: decided before anything is built."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from twinlens.encoders.clean_text import Clean
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.layer_counts import refuse_endless_layers
from twinlens.training.pull.near_names import perhaps
from twinlens.training.pull.open_clip_listing import model_configs
from twinlens.training.tokenizers import CLIP_VOCABULARY_SIZE

CONFIG_NAME: Final = "open_clip_config.json"
_DEFAULT_CONTEXT = 77
# open_clip's names of a tokenizer's clean-up, and ours.
_CLEAN: dict[str, Clean] = {"lower": "clip_lower", "whitespace": "clip_whitespace", "canonicalize": "canonicalize"}


@dataclass(frozen=True)
class OpenClipConfig:
    """An open_clip model configuration.

    Attributes:
        name: What the user calls the model.
        model_cfg: `embed_dim`, `vision_cfg`, `text_cfg`, …
        preprocess_cfg: What the configuration's file says of preprocessing; empty for built-in names.
        folder: Where the file lies, if in the folder of a repository that may hold its tokenizer too.
    """

    name: str
    model_cfg: dict[str, Any]
    preprocess_cfg: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def text_cfg(self) -> dict[str, Any]:
        """The text tower's part."""
        text_cfg: dict[str, Any] = self.model_cfg["text_cfg"]
        return text_cfg

    @property
    def context_length(self) -> int:
        """Tokens of the text tower's window, without those that it adds itself."""
        return int(self.text_cfg.get("context_length") or _DEFAULT_CONTEXT)

    @property
    def is_coca(self) -> bool:
        """Whether it has a decoder on top, which is dropped."""
        return "multimodal_cfg" in self.model_cfg


@dataclass(frozen=True)
class TokenizerNeed:
    """Which tokenizer a text tower was trained with.

    Attributes:
        hub_name: A tokenizer on the hub; empty for CLIP's own byte-pair encoding.
        clean: What is done to a text before.
        strip_sep: The separator becomes id 0 (CLIPA).
    """

    hub_name: str
    clean: Clean
    strip_sep: bool = False


def built_in(name: str) -> OpenClipConfig:
    """A configuration that open_clip lists.

    Raises:
        ExportError: if it lists none of that name.
    """
    listed = model_configs()
    if name in listed:
        return OpenClipConfig(name, listed[name])
    hint = f"; a folder or repository is written hf:{name}" if "/" in name else perhaps(name, listed)
    raise ExportError(f"open_clip knows no model {name!r}" + (hint or "; its names: open_clip.list_models()"))


def from_file(name: str, path: Path) -> OpenClipConfig:
    """A configuration file: open_clip's own, or a repository's with `model_cfg` and `preprocess_cfg`.

    Raises:
        ExportError: if it cannot be read or is none.
    """
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ExportError(f"{path} is not JSON: {error}") from error
    model_cfg = loaded.get("model_cfg", loaded) if isinstance(loaded, dict) else {}
    parts = [model_cfg.get(part) for part in ("vision_cfg", "text_cfg")] if isinstance(model_cfg, dict) else [None]
    if not all(isinstance(part, dict) for part in parts) or "embed_dim" not in model_cfg:
        raise ExportError(f"{path} is not an open_clip model configuration (embed_dim, vision_cfg, text_cfg)")
    refuse_endless_layers(model_cfg, path)
    preprocess_cfg = loaded.get("preprocess_cfg") or {}
    return OpenClipConfig(name, model_cfg, preprocess_cfg, path.parent if path.name == CONFIG_NAME else None)


def tokenizer_need(config: OpenClipConfig, *, given: bool = False) -> TokenizerNeed:
    """Which tokenizer the model takes.

    Args:
        config: The configuration.
        given: The user names a tokenizer, so that an unusual vocabulary is no riddle.

    Raises:
        ExportError: if it is one that serving cannot reproduce.
    """
    text_cfg = config.text_cfg
    options = dict(text_cfg.get("tokenizer_kwargs") or {})
    hub_name = str(text_cfg.get("hf_tokenizer_name") or text_cfg.get("hf_model_name") or "")
    clean = str(options.pop("clean", "whitespace" if hub_name or given else "lower"))
    strip_sep = bool(options.pop("strip_sep_token", False))
    mode = text_cfg.get("tokenizer_mode")
    odd = sorted(options) + ([f"tokenizer_mode {mode}"] if mode else [])
    if odd or clean not in _CLEAN or _CLEAN[clean] not in get_args(Clean):
        raise ExportError(
            f"{config.name} uses tokenizer options that serving does not have: {', '.join(odd) or f'clean={clean}'}"
        )
    vocabulary = text_cfg.get("vocab_size", CLIP_VOCABULARY_SIZE)
    if not hub_name and not given and vocabulary != CLIP_VOCABULARY_SIZE:
        raise ExportError(
            f"{config.name} has a vocabulary of {vocabulary:,}, CLIP's is {CLIP_VOCABULARY_SIZE:,}: name its tokenizer "
            "with --tokenizer"
        )
    return TokenizerNeed(hub_name, _CLEAN[clean], strip_sep)


def check_pictures(config: OpenClipConfig) -> None:
    """Refuses towers whose input is not a square of fixed size.

    Raises:
        ExportError: naming the reason.
    """
    vision_cfg = config.model_cfg["vision_cfg"]
    if "naflex" in str(vision_cfg.get("timm_model_name") or "").lower() or vision_cfg.get("use_naflex"):
        raise ExportError(f"{config.name} takes pictures of any shape (NaFlex); a bundle's tower has one fixed size")
    size = vision_cfg.get("image_size", 224)
    if isinstance(size, (list, tuple)) and len(set(size)) != 1:
        raise ExportError(f"pictures of {size[0]}x{size[1]} are not square; pull supports square inputs")
