"""Which files of a folder are pictures: those called like one, and those that begin like one.

The encoders room has the same rule for `twinlens embed`, and a test holds the two together: rooms above the wire do not
import each other.
"""

from __future__ import annotations

from pathlib import Path

IMAGE_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".gif", ".bmp", ".dib"),
        *(".tif", ".tiff", ".avif", ".avifs", ".heic", ".heif", ".hif"),
    }
)
SNIFF_BYTES = 64

_SIGNATURES = (
    *(b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a"),
    *(b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
)
# "BM" alone begins many a text; the size of the second header settles it.
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_HEIF_BRANDS = frozenset(
    {b"avif", b"avis", b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"}
)  # fmt: skip


def is_image(path: Path) -> bool:
    """Whether a file is called like a picture, whatever it holds, or begins like one."""
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return begins_like_image(file.read(SNIFF_BYTES))
    except OSError:
        return False


def begins_like_image(head: bytes) -> bool:
    """Whether a file's first 64 bytes are those of a picture."""
    if head.startswith(_SIGNATURES):
        return True
    if head[:2] == b"BM":
        return int.from_bytes(head[14:18], "little") in _BMP_HEADERS
    if head[:4] == b"RIFF":
        return head[8:12] == b"WEBP"
    if head[4:8] == b"ftyp":
        size = int.from_bytes(head[:4], "big")
        brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(size, len(head)), 4))}
        return bool(brands & _HEIF_BRANDS) or head[8:12] in {b"mif1", b"msf1"}
    return False
