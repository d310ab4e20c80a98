"""How pictures become a tower's input, from what open_clip, timm and transformers say of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.export.errors import ExportError

# PIL's numbers, as transformers writes them.
_PIL_FILTERS = {2: "bilinear", 3: "bicubic"}
_BICUBIC_BY_DEFAULT = ("CLIP", "Siglip", "Bit")


def from_open_clip(cfg: Mapping[str, Any]) -> PreprocessSpec:
    """open_clip's `PreprocessCfg` as its `image_transform_v2` uses it for evaluation.

    Raises:
        ExportError: if pictures are not square, or it asks for something we do not have.
    """
    size = _square(cfg["size"])
    return _spec(
        size=size,
        resize_size=size,
        resize_mode=cfg.get("resize_mode") or "shortest",
        # open_clip evaluates with bicubic whatever was drawn at random in training.
        interpolation="bilinear" if cfg.get("interpolation") == "bilinear" else "bicubic",
        mean=_triple(cfg["mean"]),
        std=_triple(cfg["std"]),
        fill=cfg.get("fill_color", 0),
    )


def from_timm(cfg: Mapping[str, Any]) -> PreprocessSpec:
    """The data configuration that timm resolves, as its `create_transform` uses it for evaluation.

    Raises:
        ExportError: if pictures are not square RGB, or it asks for something we do not have.
    """
    channels, *size = cfg["input_size"]
    if channels != 3:
        raise ExportError(f"the model takes pictures of {channels} channels, RGB has 3")
    side = _square(size)
    mode = {"center": "shortest", "squash": "squash"}.get(cfg.get("crop_mode") or "center")
    if mode is None:
        raise ExportError(f"timm's crop_mode {cfg['crop_mode']!r} is not supported: center, squash")
    return _spec(
        size=side,
        resize_size=math.floor(side / float(cfg["crop_pct"])),
        resize_mode=mode,
        interpolation=_known_filter(cfg["interpolation"]),
        mean=_triple(cfg["mean"]),
        std=_triple(cfg["std"]),
    )


def from_hugging_face(cfg: Mapping[str, Any]) -> PreprocessSpec:
    """What transformers keeps in `preprocessor_config.json`.

    Raises:
        ExportError: if pictures are not square, or it asks for something we do not have.
    """
    cfg = cfg.get("image_processor", cfg)
    processor = str(cfg.get("image_processor_type") or cfg.get("feature_extractor_type") or "")
    if not cfg.get("do_resize", True) or "crop_pct" in cfg or not cfg.get("do_rescale", True) or cfg.get("do_pad"):
        raise ExportError(f"preprocessing by {processor or 'an unnamed processor'} is more than resize, crop and scale")
    if not math.isclose(float(cfg.get("rescale_factor", 1 / 255)), 1 / 255, rel_tol=1e-3):
        raise ExportError(f"rescale_factor {cfg['rescale_factor']} is not 1/255")
    resample = cfg.get("resample")
    if resample is None:
        resample = 3 if processor.startswith(_BICUBIC_BY_DEFAULT) else 2
    if resample not in _PIL_FILTERS:
        raise ExportError(f"resample {resample} is not supported: 2 (bilinear), 3 (bicubic)")
    crop = cfg.get("crop_size") if cfg.get("do_center_crop", "crop_size" in cfg) else None
    resize, shortest = _hugging_face_size(cfg.get("size"), crop)
    size = _square(_sides(crop)) if crop is not None else resize
    normalise = cfg.get("do_normalize", True)
    return _spec(
        size=size,
        resize_size=resize,
        resize_mode="shortest" if shortest else "squash",
        interpolation=_PIL_FILTERS[resample],
        mean=_triple(cfg["image_mean"]) if normalise else (0.0, 0.0, 0.0),
        std=_triple(cfg["image_std"]) if normalise else (1.0, 1.0, 1.0),
    )


def _hugging_face_size(size: Any, crop: Any) -> tuple[int, bool]:
    """The side to resize to, and whether it is the shorter one's."""
    if isinstance(size, int):  # older files: the shorter side where a crop follows, both sides otherwise
        return size, crop is not None
    if isinstance(size, Mapping) and "shortest_edge" in size and "longest_edge" not in size:
        if crop is None:
            raise ExportError("pictures are resized by their shorter side and not cropped: the input is not square")
        return int(size["shortest_edge"]), True
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return _square(_sides(size)), False
    raise ExportError(f"a picture size of {size!r} is not supported: shortest_edge with a crop, or height and width")


def _sides(size: Any) -> Any:
    return (size["height"], size["width"]) if isinstance(size, Mapping) else size


def _known_filter(name: str) -> str:
    if name not in {"bilinear", "bicubic"}:
        raise ExportError(f"interpolation {name!r} is not supported: bilinear, bicubic")
    return name


def _square(size: Any) -> int:
    if isinstance(size, Sequence):
        if len(set(size)) != 1:
            raise ExportError(f"pictures of {size[0]}x{size[1]} are not square; pull supports square inputs")
        return int(size[0])
    return int(size)


def _triple(value: float | Sequence[float]) -> tuple[float, float, float]:
    r, g, b = value if isinstance(value, Sequence) else (value, value, value)
    return float(r), float(g), float(b)


def _spec(**fields: Any) -> PreprocessSpec:
    try:
        return PreprocessSpec(**fields)
    except ValidationError as error:
        raise ExportError(f"preprocessing not supported: {error.errors()[0]['msg']}") from error
