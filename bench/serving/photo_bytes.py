"""Encoded pictures as callers send them: no two alike, and some that are none. Loads no NumPy."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path


def read_photos(folder: Path) -> list[bytes]:
    """The JPEG files of a folder, in order.

    Raises:
        FileNotFoundError: there are none.
    """
    found = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    if not found:
        raise FileNotFoundError(f"no pictures in {folder}")
    return found


def distinct(jpeg: bytes, number: int) -> bytes:
    """The same picture with a comment of its own, so that no two calls bring the same bytes."""
    comment = b"call %d" % number
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment + jpeg[2:]


def poisoned(jpeg: bytes, number: int) -> bytes:
    """What must be refused: five ways to be no picture, in turn."""
    match number % 5:
        case 0:
            return b"GIF89a" + jpeg[: len(jpeg) // 2]
        case 1:
            return b"not a picture, %d" % number
        case 2:
            return _png(60_000, 60_000)
        case 3:
            return jpeg[:40]
        case _:
            return _png(64, 64)[:-30]


def _png(width: int, height: int) -> bytes:
    """A PNG with a header and next to nothing behind it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    out = io.BytesIO()
    out.write(b"\x89PNG\r\n\x1a\n")
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(64))), (b"IEND", b"")):
        out.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return out.getvalue()
