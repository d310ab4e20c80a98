"""Awkward pictures and texts that a bundle is checked with: each goes wrong under a usual mistake."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageFilter

_SEED = 20260101

DEFAULT_PARITY_TEXTS: Final[tuple[str, ...]] = (
    "a photo of a cat",
    "  A  Photo\tof two\nDOGS  ",
    "fish &amp;amp; chips, “crème brûlée” at the caf\u0065\u0301",
    "a photo <|endoftext|> of a dog </s> [SEP]",
    "一只狗的照片",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467 at the beach!?",
    "12345 red-and-blue things_with_underscores",
    " ".join(["a long caption that names a lighthouse, a harbour and many small boats"] * 20),
)


def default_parity_images() -> dict[str, bytes]:
    """Ten small encoded pictures by file name, drawn from a fixed seed.

    A rotated JPEG (EXIF), a 16-bit grey PNG, hidden colours under transparency, a CMYK JPEG, a palette with a
    transparent index, grey, a picture one pixel thin, one large enough to be decoded at reduced scale, one of hard
    noise, on which filters of resizing differ most, and one whose colour profile exchanges red and blue.
    """
    rng = np.random.default_rng(_SEED)
    exif = Image.Exif()
    exif[0x0112] = 6
    grey = _scene(rng, 120, 180)[..., 1].astype(np.uint16)
    deep = Image.fromarray(grey * 257)
    rgba = np.dstack([_scene(rng, 160, 160), np.zeros((160, 160), np.uint8)])
    rgba[40:120, 30:130, 3] = 255
    palette = Image.fromarray(_scene(rng, 150, 200)).quantize(16)
    return {
        "exif_rotated.jpg": _encode(Image.fromarray(_scene(rng, 240, 320)), "JPEG", quality=95, exif=exif),
        "grey_16_bit.png": _encode(deep, "PNG"),
        "transparent.png": _encode(Image.fromarray(rgba), "PNG"),
        "cmyk.jpg": _encode(Image.fromarray(_scene(rng, 200, 200)).convert("CMYK"), "JPEG", quality=95),
        "palette.png": _encode(palette, "PNG", transparency=3),
        "grey.png": _encode(Image.fromarray(_scene(rng, 90, 260)).convert("L"), "PNG"),
        "thin.png": _encode(Image.fromarray(_scene(rng, 1, 900)), "PNG"),
        "large.jpg": _encode(Image.fromarray(_scene(rng, 1500, 2000)), "JPEG", quality=80),
        "noise.png": _encode(Image.fromarray(rng.integers(0, 2, (130, 170, 3), dtype=np.uint8) * 255), "PNG"),
        "profile.png": _encode(Image.fromarray(_scene(rng, 140, 110)), "PNG", icc_profile=_red_for_blue()),
    }


def _scene(rng: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    """Soft patches of colour with an edge and some grain: structure at every scale."""
    coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture.filter(ImageFilter.GaussianBlur(1)), dtype=np.int16).copy()
    pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
    pixels += rng.integers(-8, 9, pixels.shape, dtype=np.int16)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _red_for_blue() -> bytes:
    """The profile of sRGB with the tags of red and blue exchanged: whoever ignores it sees other colours."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[24:36] = bytes((7, 234, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0))  # made on 1 January 2026, not just now
    tags = int.from_bytes(profile[128:132], "big")
    other = {b"rXYZ": b"bXYZ", b"bXYZ": b"rXYZ"}
    for at in range(132, 132 + 12 * tags, 12):
        name = bytes(profile[at : at + 4])
        profile[at : at + 4] = other.get(name, name)
    return bytes(profile)


def _encode(picture: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()
