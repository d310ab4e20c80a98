"""A writer of BMP files that Pillow would not write: any header, depth, direction, masks, run lengths."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def bmp(
    rows: Sequence[bytes],
    width: int,
    bits: int,
    *,
    header: int = 40,
    compression: int = 0,
    masks: Sequence[int] = (),
    palette: bytes = b"",
    top_down: bool = False,
    height: int | None = None,
) -> bytes:
    """Writes a BMP.

    Args:
        rows: Rows from the top as stored, without padding; with compression the stream as the only one.
        width: Pixels a row.
        bits: Bits a pixel.
        header: Size of the information header: 12 (OS/2), 40, 52, 56, 108 or 124.
        compression: 0 none, 1 RLE8, 2 RLE4, 3 bit fields.
        masks: Bit fields of red, green, blue and perhaps opacity.
        palette: Entries as stored.
        top_down: Whether the first stored row is the top one.
        height: Rows, where the stream is compressed.
    """
    count = len(rows) if height is None else height
    if compression in {1, 2}:
        body = b"".join(rows)
    else:
        padded = [row + b"\0" * (-len(row) % 4) for row in rows]
        body = b"".join(padded if top_down else reversed(padded))
    if header == 12:
        information = struct.pack("<IHHHH", 12, width, count, 1, bits)
    else:
        signed = -count if top_down else count
        colours = len(palette) // 4
        information = struct.pack(
            "<IiiHHIIiiII", header, width, signed, 1, bits, compression, len(body), 2835, 2835, colours, 0
        )
    fields = b"".join(struct.pack("<I", mask) for mask in masks)
    if header <= 40:
        information += fields
    else:
        information = (information + fields).ljust(header, b"\0")
    start = 14 + len(information) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(body), 0, 0, start) + information + palette + body


def rows_of(pixels: NDArray[np.generic]) -> list[bytes]:
    """The rows of an array, as stored."""
    return [row.tobytes() for row in pixels]
