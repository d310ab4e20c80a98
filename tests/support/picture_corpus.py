"""A small valid file of every format and feature that is read: where fuzzing starts from."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageCms

from tests.support.bmp_files import bmp, rows_of
from tests.support.gif_files import gif
from tests.support.image_files import chunk, encode, png, scene, swapped_profile
from tests.support.tiff_files import COLOUR_MAP, EXTRA_SAMPLES, PHOTOMETRIC, tiff_of_pixels

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def exif(orientation: object = 6) -> bytes:
    """An EXIF block with an orientation, a text and a sub-directory."""
    tags = Image.Exif()
    tags[0x0112] = orientation
    tags[0x010F] = "a maker of cameras"
    tags.get_ifd(0x8769)[0x9003] = "2024:01:02 03:04:05"
    return tags.tobytes()


def corpus(*, height: int = 24, width: int = 32, heic: bool = False) -> dict[str, bytes]:
    """Valid files by name; the name begins with the format. With `heic` also those that take pillow-heif."""
    rgb = scene(height, width)
    grey = rgb[..., 1].copy()
    alpha = np.tile(np.linspace(0, 255, width).astype(np.uint8), (height, 1))
    rgba = np.dstack([rgb, alpha])
    indexed = Image.fromarray(rgb).quantize(16)
    second = Image.fromarray(rgb[::-1].copy())
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    cmyk = Image.fromarray(rgb).convert("CMYK")
    deep = grey.astype(np.uint16) * 257
    return {
        **_jpegs(rgb, grey, cmyk, second),
        **_pngs(rgb, grey, rgba, indexed, deep, srgb, second),
        "WEBP lossy": encode(rgb, "WEBP"),
        "WEBP lossless": encode(rgba, "WEBP", lossless=True),
        "WEBP metadata": encode(rgba, "WEBP", exif=exif(), xmp=XMP, icc_profile=swapped_profile()),
        "WEBP animated": encode(Image.fromarray(rgba), "WEBP", save_all=True, append_images=[second.convert("RGBA")]),
        "GIF": encode(indexed, "GIF", transparency=2),
        "GIF interlaced": encode(indexed, "GIF", interlace=True, comment=b"hello"),
        "GIF animated": encode(indexed, "GIF", save_all=True, append_images=[second.quantize(16)], loop=0),
        "GIF beside its canvas": gif([(grey[:9, :9].copy(), (3, 4))], (width, height), bytes(range(256)) * 3),
        **_bmps(rgb, grey, alpha),
        **_tiffs(rgb, grey, rgba, indexed, deep, cmyk, second),
        "AVIF": encode(rgb, "AVIF", speed=10),
        "AVIF alpha": encode(rgba, "AVIF", speed=10, exif=exif(), xmp=XMP, icc_profile=srgb),
        "AVIF animated": encode(rgb, "AVIF", speed=10, save_all=True, append_images=[second]),
        **(_heics(rgb, rgba, second) if heic else {}),
    }


def _heics(rgb: np.ndarray, rgba: np.ndarray, second: Image.Image) -> dict[str, bytes]:
    import pillow_heif

    pillow_heif.register_heif_opener()
    return {
        "HEIC": encode(rgb, "HEIF"),
        "HEIC alpha": encode(rgba, "HEIF", exif=exif(), icc_profile=swapped_profile()),
        "HEIC of two pictures": encode(rgb, "HEIF", save_all=True, append_images=[second.copy()]),
    }


def _jpegs(rgb: np.ndarray, grey: np.ndarray, cmyk: Image.Image, second: Image.Image) -> dict[str, bytes]:
    return {
        "JPEG": encode(rgb, "JPEG"),
        "JPEG progressive": encode(rgb, "JPEG", progressive=True),
        "JPEG metadata": encode(rgb, "JPEG", exif=exif(), xmp=XMP, icc_profile=swapped_profile(), comment=b"hello"),
        "JPEG grey": encode(grey, "JPEG"),
        "JPEG CMYK": encode(cmyk, "JPEG"),
        "JPEG restarts": encode(rgb, "JPEG", restart_marker_blocks=1),
        "JPEG of two pictures": encode(Image.fromarray(rgb), "MPO", save_all=True, append_images=[second]),
    }


def _pngs(
    rgb: np.ndarray,
    grey: np.ndarray,
    rgba: np.ndarray,
    indexed: Image.Image,
    deep: np.ndarray,
    srgb: bytes,
    second: Image.Image,
) -> dict[str, bytes]:
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"hello" * 20))
    international = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)
    return {
        "PNG": encode(rgb),
        "PNG metadata": encode(rgb, exif=exif(), icc_profile=srgb),
        "PNG text": png(rgb, 8, 2, before=[text, international]),
        "PNG alpha": encode(rgba),
        "PNG grey alpha": encode(Image.fromarray(rgba[..., 2:].copy(), "LA")),
        "PNG palette": encode(indexed, transparency=bytes(range(0, 256, 16))),
        "PNG colour key": png(rgb, 8, 2, before=[chunk(b"tRNS", struct.pack(">HHH", 230, 40, 60))]),
        "PNG deep": encode(deep),
        "PNG deep colour": png(rgba.astype(int) * 257, 16, 6),
        "PNG one bit": encode(Image.fromarray(grey > 99)),
        "PNG animated": encode(Image.fromarray(rgb), "PNG", save_all=True, append_images=[second]),
    }


def _bmps(rgb: np.ndarray, grey: np.ndarray, alpha: np.ndarray) -> dict[str, bytes]:
    width = rgb.shape[1]
    bgra = np.dstack([rgb[..., ::-1], alpha])
    masks = (0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    runs = b"".join(b"".join(bytes([1, i]) for i in row.tolist()) + b"\0\0" for row in grey[::-1] // 16) + b"\0\1"
    table = bytes(range(64))
    return {
        "BMP": encode(rgb, "BMP"),
        "BMP palette": bmp(rows_of(grey // 16), width, 8, palette=table, top_down=True),
        "BMP runs": bmp([runs], width, 8, compression=1, palette=table, height=rgb.shape[0]),
        "BMP alpha": bmp(rows_of(bgra), width, 32, header=124, compression=3, masks=masks),
        "BMP of OS/2": bmp(rows_of(rgb[..., ::-1]), width, 24, header=12),
    }


def _tiffs(
    rgb: np.ndarray,
    grey: np.ndarray,
    rgba: np.ndarray,
    indexed: Image.Image,
    deep: np.ndarray,
    cmyk: Image.Image,
    second: Image.Image,
) -> dict[str, bytes]:
    colours = [i * 257 for i in range(256)] * 3
    tags: dict[int, Any] = {0x0112: 6, 0x010F: "a maker of cameras"}
    packed = ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd", "lzma")
    bits = Image.fromarray(grey > 99)
    return {
        **{f"TIFF {name}": encode(rgb, "TIFF", compression=name, tiffinfo=tags) for name in packed},
        **{f"TIFF {name}": encode(bits, "TIFF", compression=name) for name in ("group3", "group4", "tiff_ccitt")},
        "TIFF big": encode(rgb, "TIFF", big_tiff=True, compression="tiff_lzw"),
        "TIFF pages": encode(Image.fromarray(rgb), "TIFF", save_all=True, append_images=[second.copy()]),
        "TIFF palette": encode(indexed, "TIFF"),
        "TIFF CMYK": encode(cmyk, "TIFF", compression="tiff_lzw"),
        "TIFF YCbCr": encode(Image.fromarray(rgb).convert("YCbCr"), "TIFF", compression="tiff_lzw"),
        "TIFF Lab": tiff_of_pixels(rgb, {PHOTOMETRIC: 8}),
        "TIFF planes": tiff_of_pixels(rgb, {}, planar=True, order=">"),
        "TIFF tiles": tiff_of_pixels(rgba, {EXTRA_SAMPLES: 1}, tile=(16, 16)),
        "TIFF strips": tiff_of_pixels(rgb, {}, rows=5),
        "TIFF colour map": tiff_of_pixels(grey, {PHOTOMETRIC: 3, COLOUR_MAP: colours}, order=">"),
        "TIFF deep": tiff_of_pixels(deep, {}, order=">"),
        "TIFF deep packed": encode(deep, "TIFF", compression="tiff_lzw"),
        "TIFF long": encode(grey.astype(np.int32) * 999, "TIFF"),
        "TIFF float": encode((grey / 255).astype(np.float32), "TIFF", compression="tiff_adobe_deflate"),
    }
