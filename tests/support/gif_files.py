"""A writer of GIF files that Pillow would not write: frames beside the canvas, colour tables missing or local."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray


def gif(
    frames: list[tuple[NDArray[np.uint8], tuple[int, int]]],
    canvas: tuple[int, int],
    palette: bytes,
    *,
    local: bool = False,
    transparent: int | None = None,
    background: int = 0,
    disposal: int = 0,
) -> bytes:
    """Writes a GIF of 256 colours.

    Args:
        frames: Indices, shape (h, w), and where each frame lies: (left, top).
        canvas: Width and height of the whole.
        palette: 768 bytes; empty for a file without any colour table.
        local: Whether each frame has the palette, instead of the file.
        transparent: The index that is transparent in each frame.
        background: Index of the background colour.
        disposal: What the frames leave behind: 0 nothing said, 1 keep, 2 background, 3 previous.
    """
    shared = bool(palette) and not local
    data = b"GIF89a" + struct.pack("<HHBBB", *canvas, 0xF7 if shared else 0x70, background, 0)
    data += palette if shared else b""
    for indices, (left, top) in frames:
        if transparent is not None or disposal:
            flags = disposal << 2 | (transparent is not None)
            data += b"\x21\xf9\x04" + struct.pack("<BHBB", flags, 5, transparent or 0, 0)
        height, width = indices.shape
        mine = bool(palette) and local
        data += b"\x2c" + struct.pack("<HHHHB", left, top, width, height, 0x87 if mine else 0)
        data += (palette if mine else b"") + _stream(indices)
    return data + b"\x3b"


def _stream(indices: NDArray[np.uint8]) -> bytes:
    """LZW without any compression: the table is cleared before codes would grow to 10 bits."""
    codes: list[int] = []
    for place, index in enumerate(indices.ravel().tolist()):
        if place % 254 == 0:
            codes.append(256)
        codes.append(index)
    codes.append(257)
    bits = (np.array(codes)[:, None] >> np.arange(9)) & 1
    packed = np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").tobytes()
    blocks = [packed[i : i + 255] for i in range(0, len(packed), 255)]
    return b"\x08" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"
