"""`twinlens pull`: an open_clip model, published or from a local checkpoint, as a bundle."""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import Lineage, Manifest, PreprocessSpec
from twinlens.training.errors import first_line
from twinlens.training.export.bundle import About, check_destination, publish_towers
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import open_clip_towers, scoring_rule
from twinlens.training.published_weights import published_weights
from twinlens.training.tokenizers import CLIP_VOCABULARY_SIZE, clip_text_spec, open_clip_tokenizer_json

_TAGS_SHOWN = 6
_WEIGHT_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors", ".ckpt")


@dataclass(frozen=True)
class Source:
    """What to pull.

    Attributes:
        model: An open_clip model name, or what to call the model of `config`.
        pretrained: A published tag (`openai`), the path of a checkpoint, or None for random weights.
        config: An open_clip model configuration file, instead of a built-in name.
    """

    model: str
    pretrained: str | None = None
    config: Path | None = None


def parse_source(text: str, config: Path | None = None) -> Source:
    """Reads `NAME`, `NAME:TAG` or `NAME:/path/to/checkpoint.pt`.

    Raises:
        ExportError: if the name is empty.
    """
    model, _, pretrained = text.partition(":")
    if not model:
        raise ExportError(f"no model name in {text!r}: write NAME, NAME:TAG or NAME:/path/to/checkpoint.pt")
    return Source(model, pretrained or None, config)


def pull(
    name: str,
    pretrained: str | Path | None,
    out: Path,
    *,
    config: Path | None = None,
    bundle_name: str | None = None,
    version: str = "1",
) -> Manifest:
    """Publishes an open_clip model as a bundle.

    Preprocessing is that of open_clip's own validation transform; the activation is the one the weights were trained
    with (quick-GELU for OpenAI's, whatever the configuration of that name says); scores become probabilities by the
    checkpoint's own rule.

    Args:
        name: An open_clip model name such as `ViT-B-32`, or any name with `config`.
        pretrained: A published tag, a local `.pt`/`.safetensors` checkpoint, or None for random weights (for trying
            things out).
        out: The bundle's folder.
        config: An open_clip model configuration (JSON) for models that open_clip does not list.
        bundle_name: The bundle's name; by default the model's and the tag's.
        version: The bundle's version.

    Raises:
        ExportError: if the model or its weights cannot be had, it needs a tokenizer that we cannot write yet, or the
            exported graphs do not agree with torch.
        BundleError: if `out` holds another bundle.
    """
    check_destination(out)
    source = Source(name, None if pretrained is None else str(pretrained), config)
    model_cfg, preprocess_cfg = _configuration(source)
    _require_clip_tokenizer(source, model_cfg)
    model, preprocess_cfg = _create(source, model_cfg, preprocess_cfg)
    context_length = int(model_cfg.get("text_cfg", {}).get("context_length", 77))
    image, text = open_clip_towers(
        model, _preprocess_spec(preprocess_cfg), clip_text_spec(context_length), open_clip_tokenizer_json(), model_cfg
    )
    about = About(
        name=bundle_name or _bundle_name(source),
        version=version,
        scoring=scoring_rule(model),
        lineage=Lineage(method=f"open_clip {name}" + (f":{_label(source.pretrained)}" if source.pretrained else "")),
        description=f"open_clip model {name}, "
        + (_label(source.pretrained) if source.pretrained else "random weights"),
    )
    return publish_towers(image, text, about, out)


def _configuration(source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    """The open_clip model configuration, and preprocessing that a configuration file may state."""
    import open_clip  # noqa: PLC0415 - seconds

    if source.config is not None:
        try:
            loaded = json.loads(source.config.read_text(encoding="utf-8"))
        except OSError as error:
            raise ExportError(f"cannot read {source.config}: {error.strerror}") from error
        except ValueError as error:
            raise ExportError(f"{source.config} is not JSON: {error}") from error
        # Hugging Face repositories hold {"model_cfg": …, "preprocess_cfg": …}, open_clip itself the inner part.
        model_cfg = loaded.get("model_cfg", loaded) if isinstance(loaded, dict) else {}
        parts = [model_cfg.get(part) for part in ("vision_cfg", "text_cfg")] if isinstance(model_cfg, dict) else [None]
        if not all(isinstance(part, dict) for part in parts) or "embed_dim" not in model_cfg:
            raise ExportError(
                f"{source.config} is not an open_clip model configuration (embed_dim, vision_cfg, text_cfg)"
            )
        return model_cfg, loaded.get("preprocess_cfg", {})
    model_cfg = open_clip.get_model_config(source.model)
    if model_cfg is None:
        raise ExportError(f"open_clip knows no model {source.model!r}; its names: open_clip.list_models()")
    return copy.deepcopy(model_cfg), {}


def _require_clip_tokenizer(source: Source, model_cfg: dict[str, Any]) -> None:
    text_cfg = model_cfg.get("text_cfg", {})
    other = text_cfg.get("hf_tokenizer_name") or text_cfg.get("hf_model_name")
    if source.config is None and "siglip" in source.model.lower():
        other = other or "SigLIP's sentencepiece"
    if text_cfg.get("tokenizer_kwargs"):
        other = other or f"tokenizer options {sorted(text_cfg['tokenizer_kwargs'])}"
    if text_cfg.get("vocab_size", CLIP_VOCABULARY_SIZE) != CLIP_VOCABULARY_SIZE:
        other = other or f"a vocabulary of {text_cfg['vocab_size']}"
    if "multimodal_cfg" in model_cfg:
        other = other or "CoCa's extra tokens"
    if other:
        raise ExportError(
            f"{source.model} uses another tokenizer ({other}); pull supports models with CLIP's own byte-pair encoding"
        )


def _create(
    source: Source, model_cfg: dict[str, Any], preprocess_cfg: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """The model with its weights, and its preprocessing as open_clip resolves it."""
    import open_clip  # noqa: PLC0415
    from open_clip.factory import load_checkpoint  # noqa: PLC0415
    from open_clip.model import CLIP, CustomTextCLIP  # noqa: PLC0415
    from open_clip.pretrained import get_pretrained_cfg  # noqa: PLC0415
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict  # noqa: PLC0415

    tag_cfg = get_pretrained_cfg(source.model, source.pretrained) if source.pretrained and not source.config else {}
    path = _checkpoint_path(source, published=bool(tag_cfg), tags=open_clip.list_pretrained_tags_by_model(source.model))
    if tag_cfg:
        # open_clip only warns when a tag was trained with the other GELU; the vectors would be wrong.
        model_cfg["quick_gelu"] = bool(tag_cfg.get("quick_gelu", False))
        path = published_weights(source.model, str(source.pretrained), tag_cfg)
    cfg = copy.deepcopy(model_cfg)
    custom_text = bool(cfg.pop("custom_text", False))
    cfg["vision_cfg"]["timm_model_pretrained"] = False
    try:
        model: nn.Module = (CustomTextCLIP if custom_text else CLIP)(**cfg)
    except (TypeError, ValueError, KeyError, AssertionError, RuntimeError) as error:
        raise ExportError(f"open_clip cannot build {source.model}: {first_line(error)}") from error
    if path is not None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load_checkpoint(model, str(path), strict=True, weights_only=True)
        except Exception as error:  # torch, pickle and safetensors each raise their own
            raise ExportError(f"cannot load {_label(str(path))} into {source.model}: {first_line(error)}") from error
    merged = merge_preprocess_dict(merge_preprocess_dict(PreprocessCfg(), tag_cfg), preprocess_cfg)
    merged["size"] = getattr(model.visual, "image_size", merged["size"])
    return model, merged


def _checkpoint_path(source: Source, *, published: bool, tags: list[str]) -> Path | None:
    if source.pretrained is None or published:
        return None
    path = Path(source.pretrained).expanduser()
    if path.is_file():
        return path
    if path.suffix in _WEIGHT_SUFFIXES or "/" in source.pretrained:
        raise ExportError(f"no checkpoint at {path}")
    known = ", ".join(tags[:_TAGS_SHOWN]) + (", …" if len(tags) > _TAGS_SHOWN else "") if tags else "none"
    raise ExportError(f"{source.model} has no published weights {source.pretrained!r}; known: {known}")


def _preprocess_spec(cfg: dict[str, Any]) -> PreprocessSpec:
    size = cfg["size"]
    if isinstance(size, (list, tuple)):
        if len(set(size)) != 1:
            raise ExportError(f"pictures of {size[0]}x{size[1]} are not square; pull supports square inputs")
        size = size[0]
    try:
        return PreprocessSpec(
            size=size,
            resize_size=size,
            resize_mode=cfg.get("resize_mode") or "shortest",
            # open_clip evaluates with bicubic whatever was drawn at random in training.
            interpolation="bilinear" if cfg.get("interpolation") == "bilinear" else "bicubic",
            mean=_triple(cfg["mean"]),
            std=_triple(cfg["std"]),
            fill=cfg.get("fill_color", 0),
        )
    except ValidationError as error:
        raise ExportError(f"preprocessing not supported: {error.errors()[0]['msg']}") from error


def _triple(value: float | list[float] | tuple[float, ...]) -> tuple[float, float, float]:
    r, g, b = value if isinstance(value, (list, tuple)) else (value, value, value)
    return float(r), float(g), float(b)


def _bundle_name(source: Source) -> str:
    name = f"{source.model}-{_label(source.pretrained) if source.pretrained else 'random'}"
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "-" for c in name).lstrip("._-")
    return safe[:128] or "model"


def _label(pretrained: str | None) -> str:
    """A tag as it is; of a path the file's name only: bundles travel, folders of their maker's machine do not."""
    return Path(pretrained).stem if pretrained and Path(pretrained).suffix in _WEIGHT_SUFFIXES else str(pretrained)
