"""From whatever a file stores (indexed, CMYK, profiled, transparent, deep) to 8-bit sRGB over white."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageCms

from twinlens.encoders.deep_samples import DEEP_MODES, DeepScale

# Large pictures are converted by strips of rows, so that the copies on the way stay small beside the picture itself.
_STRIP_PIXELS = 4_000_000
_WHITE = (255, 255, 255)
# Printers' profiles have up to 2 MB or so. The last few are kept, so what is kept has to be small.
_MAX_PROFILE = 4 * 1024 * 1024


def to_srgb(picture: Image.Image, *, sample_bits: int | None = None) -> Image.Image:
    """Converts a loaded picture of any Pillow mode to mode RGB.

    Order: deep samples are scaled to 8 bit, the palette is expanded, the colours are taken to sRGB by the embedded
    profile if it is readable, and what is transparent is laid over white, so that hidden colours never show.

    Args:
        picture: Loaded, with the `info` its plug-in left (`icc_profile`, `transparency`).
        sample_bits: Bits a sample as stored, where known: a PNG's transparent colour is given in these.
    """
    scale = DeepScale.of(picture) if picture.mode in DEEP_MODES else None
    width, height = picture.size
    rows = max(1, _STRIP_PIXELS // width)
    if height <= rows or _is_plain(picture):
        return _convert(picture, scale, sample_bits)
    result = Image.new("RGB", picture.size)
    for top in range(0, height, rows):
        strip = picture.crop((0, top, width, min(height, top + rows)))
        result.paste(_convert(strip, scale, sample_bits), (0, top))
    return result


def _is_plain(picture: Image.Image) -> bool:
    return picture.mode == "RGB" and not {"transparency", "icc_profile"} & picture.info.keys()


def _convert(picture: Image.Image, scale: DeepScale | None, sample_bits: int | None) -> Image.Image:
    opaque, alpha = _split(picture, scale, sample_bits)
    rgb = _apply_profile(opaque, picture.info.get("icc_profile"))
    if alpha is None:
        return rgb
    white = Image.new("RGB", rgb.size, _WHITE)
    white.paste(rgb, mask=alpha)
    return white


def _split(
    picture: Image.Image, scale: DeepScale | None, sample_bits: int | None
) -> tuple[Image.Image, Image.Image | None]:
    """Separates colours (mode L, RGB, CMYK, LAB …) from opacity (mode L, or None where everything is opaque)."""
    key = picture.info.get("transparency")
    if scale is not None:
        samples = np.asarray(picture)
        alpha = Image.fromarray(np.where(samples == key, 0, 255).astype(np.uint8)) if isinstance(key, int) else None
        return Image.fromarray(scale.to_8_bit(samples)), alpha
    if picture.mode == "P" and key is None:
        return picture.convert("RGB"), None
    if picture.mode in {"P", "PA", "RGBa"}:
        picture = picture.convert("RGBA")
    elif picture.mode == "La":
        picture = picture.convert("LA")
    if picture.mode in {"RGBA", "LA"}:
        return picture.convert(picture.mode[:-1]), picture.getchannel("A")
    if picture.mode == "1":
        picture = picture.convert("L")
    if key is not None and picture.mode in {"L", "RGB"}:
        return picture, _colour_key(picture, key, sample_bits or 8)
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


def _apply_profile(picture: Image.Image, profile: Any) -> Image.Image:
    if isinstance(profile, bytes) and 0 < len(profile) <= _MAX_PROFILE:
        transform = _transform(profile, picture.mode)
        if transform is not None:
            return ImageCms.applyTransform(picture, transform) or picture
    if picture.mode == "LAB":
        return ImageCms.applyTransform(picture, _lab_to_srgb()) or picture
    return picture if picture.mode == "RGB" else picture.convert("RGB")


@lru_cache(maxsize=16)
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


@lru_cache(maxsize=1)
def _lab_to_srgb() -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")


def _colour_cube() -> Image.Image:
    levels = np.array([0, 51, 102, 153, 204, 255], dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(12, 18, 3)
    return Image.fromarray(cube)
