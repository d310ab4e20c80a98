"""What a file is, by its first bytes and, for folders, by its name. Pure: no Pillow, no other room."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

# Enough to tell every format below apart.
SNIFF_BYTES: Final = 64

# Formats that decode_image reads, by Pillow's name; HEIF needs the plug-in.
READABLE: Final = frozenset({"JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF"})

IMAGE_SUFFIXES: Final = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".gif", ".bmp", ".dib"),
        *(".tif", ".tiff", ".avif", ".avifs", ".heic", ".heif", ".hif"),
    }
)

# "BM" alone begins many a text; the size of the second header settles it.
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"})


def sniff(head: bytes) -> str | None:
    """Names the format of a file from its first bytes (`SNIFF_BYTES` are enough); None if unknown.

    Formats that are recognised but not read ("PDF", "PostScript", "SVG" …) are named too, so that a refusal can say
    what the file is.
    """
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "BMP"
    if head[4:8] == b"ftyp":
        return _iso_media(head)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "HTML"
    if text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text):
        return "SVG"
    return None


def looks_like_image(name: str | PurePath, head: bytes) -> bool:
    """Whether a file found in a folder counts as a picture: by a known suffix, or by content we read.

    A file with a picture's suffix but other content counts, so that its failure is reported, not hidden.
    """
    return PurePath(name).suffix.lower() in IMAGE_SUFFIXES or sniff(head) in READABLE


def _iso_media(head: bytes) -> str:
    size = int.from_bytes(head[:4], "big")
    brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(size, len(head)), 4))}
    if brands & {b"avif", b"avis"}:
        return "AVIF"
    if brands & _HEIF_BRANDS or head[8:12] in {b"mif1", b"msf1"}:
        return "HEIF"
    return "MP4"


_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"%PDF", "PDF"),
    (b"%!PS", "PostScript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript"),
    (b"8BPS", "Photoshop"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\0\0\1\0", "ICO"),
    (b"PK\3\4", "ZIP"),
    (b"\x1f\x8b", "gzip"),
)
