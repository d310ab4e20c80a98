"""From whatever a file stores (deep, indexed, CMYK, profiled, transparent) to 8-bit sRGB over white."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

_DEEP_MODES = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I", "F"})
_TIFF_BITS_PER_SAMPLE = 258
_TIFF_PHOTOMETRIC = 262
_WHITE = (255, 255, 255)


def to_srgb(picture: Image.Image, *, sample_bits: int | None = None) -> Image.Image:
    """Converts a loaded picture of any Pillow mode to mode RGB.

    Order: deep samples are scaled to 8 bit, the palette is expanded, the colours are taken to sRGB by the embedded
    profile if it is readable, and what is transparent is laid over white, so that hidden colours never show.

    Args:
        picture: Loaded, with the `info` its plug-in left (`icc_profile`, `transparency`).
        sample_bits: Bits a sample as stored, where it is known and below 8: PNG's transparent grey is given in these.
    """
    profile = picture.info.get("icc_profile")
    opaque, alpha = _split(picture, sample_bits)
    rgb = _apply_profile(opaque, profile)
    if alpha is None:
        return rgb
    white = Image.new("RGB", rgb.size, _WHITE)
    white.paste(rgb, mask=alpha)
    return white


def _split(picture: Image.Image, sample_bits: int | None) -> tuple[Image.Image, Image.Image | None]:
    """Separates colours (mode L, RGB, CMYK, LAB …) from opacity (mode L, or None where everything is opaque)."""
    transparency = picture.info.get("transparency")
    if picture.mode in _DEEP_MODES:
        return _scale_deep(picture, transparency)
    if picture.mode in {"P", "PA"}:
        if picture.mode == "PA" or transparency is not None:
            picture = picture.convert("RGBA")
        else:
            return picture.convert("RGB"), None
    if picture.mode in {"RGBa", "La"}:  # premultiplied
        picture = picture.convert({"RGBa": "RGBA", "La": "LA"}[picture.mode])
    if picture.mode in {"RGBA", "LA"}:
        bands = picture.split()
        colours = Image.merge("RGB", bands[:3]) if picture.mode == "RGBA" else bands[0]
        return colours, bands[-1]
    if picture.mode == "1":
        picture = picture.convert("L")
        sample_bits = 1
    if transparency is not None and picture.mode in {"L", "RGB"}:
        return picture, _colour_key(picture, transparency, sample_bits or 8)
    return picture, None


def _colour_key(picture: Image.Image, key: Any, sample_bits: int) -> Image.Image | None:
    """Opacity by a colour key: pixels of exactly that colour are transparent (PNG tRNS without alpha)."""
    pixels = np.asarray(picture)
    if picture.mode == "L":
        if not isinstance(key, int):
            return None
        levels = (1 << min(sample_bits, 8)) - 1
        hidden = pixels == (key & levels) * 255 // levels
    else:
        if not isinstance(key, tuple) or len(key) != 3:
            return None
        # 16-bit colours were read by their high byte, so the key is compared by it.
        shift = 8 if sample_bits == 16 else 0
        hidden = np.logical_and.reduce([pixels[..., i] == key[i] >> shift for i in range(3)])
    return Image.fromarray(np.where(hidden, 0, 255).astype(np.uint8))


def _scale_deep(picture: Image.Image, transparency: Any) -> tuple[Image.Image, Image.Image | None]:
    samples = np.asarray(picture)
    alpha = None
    if isinstance(transparency, int):
        alpha = Image.fromarray(np.where(samples == transparency, 0, 255).astype(np.uint8))
    tags: Any = getattr(picture, "tag_v2", {})
    bits = tags.get(_TIFF_BITS_PER_SAMPLE, (16,))
    stored_bits = int(bits[0] if isinstance(bits, tuple) else bits)
    grey = _scale_to_8_bit(samples, 12 if stored_bits == 12 else 16)
    if tags.get(_TIFF_PHOTOMETRIC) == 0:  # white is zero
        grey = 255 - grey
    return Image.fromarray(grey), alpha


def _scale_to_8_bit(samples: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Scales deep grey samples to 0–255; never clips.

    16-bit (and 12-bit) samples use their full range. Integers of 32 bit and floats carry no range, so it is read from
    the values: 0–1 (floats), 0–255, 0–65535, and otherwise from the smallest to the largest.
    """
    if samples.dtype.itemsize == 2:
        return _linear(samples, 0.0, float((1 << bits) - 1))
    finite = samples[np.isfinite(samples)] if samples.dtype.kind == "f" else samples
    if finite.size == 0:
        return np.zeros(samples.shape, dtype=np.uint8)
    low, high = float(finite.min()), float(finite.max())
    if samples.dtype.kind == "f":
        samples = np.nan_to_num(samples, nan=low, posinf=high, neginf=low)
    if low >= 0.0:
        ceilings = (1.0, 255.0, 65535.0) if samples.dtype.kind == "f" else (255.0, 65535.0)
        for ceiling in ceilings:
            if high <= ceiling:
                return _linear(samples, 0.0, ceiling)
    return _linear(samples, low, high)


def _linear(samples: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    span = high - low
    scaled = (samples.astype(np.float64) - low) * (255.0 / span if span > 0 else 0.0)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def _apply_profile(picture: Image.Image, profile: Any) -> Image.Image:
    if isinstance(profile, bytes) and profile:
        transform = _transform(profile, picture.mode)
        if transform is not None:
            return ImageCms.applyTransform(picture, transform) or picture
    if picture.mode == "LAB":
        return _lab_to_srgb(picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


@lru_cache(maxsize=32)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """The way from a profile to sRGB; None where it is unreadable, does not fit the mode, or changes nothing."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except Exception:  # the profile comes from outside; an unreadable one counts as none
        return None
    if mode == "RGB":
        # Most files carry some build of sRGB itself: spare them the conversion and its rounding.
        cube = _colour_cube()
        converted = ImageCms.applyTransform(cube, transform)
        if converted is not None:
            change = np.abs(np.asarray(converted).astype(int) - np.asarray(cube).astype(int))
            if int(change.max()) <= 2:
                return None
    return transform


def _colour_cube() -> Image.Image:
    levels = np.array([0, 51, 102, 153, 204, 255], dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(12, 18, 3)
    return Image.fromarray(cube)


def _lab_to_srgb(picture: Image.Image) -> Image.Image:
    transform = ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")
    converted = ImageCms.applyTransform(picture, transform)
    if converted is None:
        raise ValueError("the LAB picture cannot be converted")
    return converted
