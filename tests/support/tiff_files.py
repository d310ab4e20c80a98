"""Writers of TIFF files that Pillow would not write: any byte order, sample kind, planes, tiles."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = int | Sequence[int]
Order = Literal["<", ">"]
ORDERS: tuple[Order, ...] = ("<", ">")

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER = 256, 257, 258, 259, 262, 266
STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS, STRIP_BYTES = 273, 274, 277, 278, 279
MAX_SAMPLE, PLANAR, COLOUR_MAP = 281, 284, 320
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_BYTES = 322, 323, 324, 325
EXTRA_SAMPLES, SAMPLE_FORMAT = 338, 339


def tiff(pixels: bytes, width: int, height: int, tags: Mapping[int, Values], *, order: Order = "<") -> bytes:
    """Writes an uncompressed TIFF of one strip; grey of 16 bits unless the tags say otherwise.

    Args:
        pixels: The strip as stored.
        width: Pixels a row.
        height: Rows.
        tags: More tags or other values, written as LONG, those of two or more values as SHORT: `BITS`, `PHOTOMETRIC`
            (1 black is zero), `SAMPLE_FORMAT` …
        order: Byte order, `<` or `>`.
    """
    return tiff_of_parts([pixels], width, height, {BITS: 16, ROWS: height, **tags}, order=order)


def tiff_of_parts(
    parts: Sequence[bytes],
    width: int,
    height: int,
    tags: Mapping[int, Values],
    *,
    tile: tuple[int, int] | None = None,
    order: Order = "<",
) -> bytes:
    """Writes an uncompressed TIFF of many strips, or of tiles (width, height) where `tile` is given."""
    offsets, body = [], b""
    for part in parts:
        offsets.append(8 + len(body))
        body += part + b"\0" * (len(part) % 2)
    sizes = [len(part) for part in parts]
    if tile is None:
        places: dict[int, Values] = {STRIP_OFFSETS: offsets, STRIP_BYTES: sizes}
    else:
        places = {TILE_WIDTH: tile[0], TILE_HEIGHT: tile[1], TILE_OFFSETS: offsets, TILE_BYTES: sizes}
    entries: dict[int, Values] = {WIDTH: width, HEIGHT: height, COMPRESSION: 1, PHOTOMETRIC: 1, SAMPLES: 1}
    entries |= {**places, **tags}
    start = 8 + len(body)
    behind = start + 2 + 12 * len(entries) + 4
    directory, more = struct.pack(order + "H", len(entries)), b""
    for tag, value in sorted(entries.items()):
        values = (value,) if isinstance(value, int) else tuple(value)
        short = len(values) > 1 and tag not in {STRIP_OFFSETS, STRIP_BYTES, TILE_OFFSETS, TILE_BYTES}
        packed = struct.pack(f"{order}{len(values)}{'H' if short else 'I'}", *values)
        if len(packed) <= 4:
            field = packed.ljust(4, b"\0")
        else:
            field = struct.pack(order + "I", behind + len(more))
            more += packed + b"\0" * (len(packed) % 2)
        directory += struct.pack(order + "HHI", tag, 3 if short else 4, len(values)) + field
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HI", 42, start) + body + directory + bytes(4) + more


def tiff_of_pixels(
    pixels: NDArray[Any],
    tags: Mapping[int, Values],
    *,
    order: Order = "<",
    planar: bool = False,
    tile: tuple[int, int] | None = None,
    rows: int | None = None,
) -> bytes:
    """Writes samples of any NumPy type, shape (h, w) or (h, w, channels), in strips or tiles, chunky or planar."""
    cube = pixels[..., None] if pixels.ndim == 2 else pixels
    height, width, channels = cube.shape
    stored = cube.astype(cube.dtype.newbyteorder(order))
    planes = [stored[..., i : i + 1] for i in range(channels)] if planar else [stored]
    parts = []
    for plane in planes:
        if tile is None:
            step = rows or height
            parts += [plane[top : top + step].tobytes() for top in range(0, height, step)]
        else:
            across, down = tile
            wide = np.pad(plane, ((0, -height % down), (0, -width % across), (0, 0)))
            for top in range(0, wide.shape[0], down):
                for left in range(0, wide.shape[1], across):
                    parts.append(wide[top : top + down, left : left + across].tobytes())
    bits = cube.dtype.itemsize * 8
    base: dict[int, Values] = {
        BITS: bits if channels == 1 else [bits] * channels,
        SAMPLES: channels,
        PHOTOMETRIC: 1 if channels < 3 else 2,
        PLANAR: 2 if planar else 1,
    }
    if tile is None:
        base[ROWS] = rows or height
    if cube.dtype.kind != "u":
        form = 2 if cube.dtype.kind == "i" else 3
        base[SAMPLE_FORMAT] = form if channels == 1 else [form] * channels
    return tiff_of_parts(parts, width, height, {**base, **tags}, tile=tile, order=order)
