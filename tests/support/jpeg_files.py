"""JPEG files that Pillow would not write: header parts put in or taken out, YCCK, other frames."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.support.image_files import encode

APP1, APP2, COMMENT = 0xE1, 0xE2, 0xFE
# Starts of frames: baseline, progressive, and both with arithmetic coding.
FRAMES = (b"\xff\xc0", b"\xff\xc2", b"\xff\xc9", b"\xff\xca")


def segment(marker: int, body: bytes = b"") -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def with_segments(data: bytes, *segments: bytes) -> bytes:
    """Puts header parts right behind the start."""
    return data[:2] + b"".join(segments) + data[2:]


def with_frame(
    data: bytes, *, marker: int | None = None, bits: int | None = None, size: tuple[int, int] | None = None
) -> bytes:
    """Changes what the frame header says: the coding, bits a sample, (width, height)."""
    changed = bytearray(data)
    start = min(place for mark in FRAMES if (place := data.find(mark)) >= 0)
    if marker is not None:
        changed[start + 1] = marker
    if bits is not None:
        changed[start + 4] = bits
    if size is not None:
        changed[start + 5 : start + 9] = struct.pack(">HH", size[1], size[0])
    return bytes(changed)


def cmyk_jpeg(rgb: NDArray[np.uint8], *, adobe: bool = True) -> bytes:
    """CMYK without black ink, stored inverted as all programs do; `adobe` leaves or drops the mark that says so."""
    data = encode(Image.fromarray(rgb).convert("CMYK"), "JPEG", quality=95, subsampling=0)
    if adobe:
        return data
    start = data.index(b"Adobe") - 4
    (length,) = struct.unpack_from(">H", data, start + 2)
    return data[:start] + data[start + 2 + length :]


def ycck_jpeg(rgb: NDArray[np.uint8]) -> bytes:
    """The same stored as YCCK: the inks' complements as YCbCr, and black (Adobe Technical Note 5116, section 18)."""
    stored = 255 - np.asarray(Image.fromarray(rgb).convert("CMYK"))
    ycc = np.asarray(Image.fromarray(255 - stored[..., :3]).convert("YCbCr"))
    planes = np.dstack([ycc, stored[..., 3]])
    data = bytearray(encode(Image.fromarray(255 - planes, "CMYK"), "JPEG", quality=95, subsampling=0))
    data[data.index(b"Adobe") + 11] = 2
    return bytes(data)
