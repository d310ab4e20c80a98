"""How a TIFF stores its first picture (TIFF 6.0, section 2), read before Pillow spends time and memory on it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from twinlens.encoders.errors import InvalidImage

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIPS, _SAMPLES, _PLANAR, _TILES, _FORMAT = 273, 277, 284, 324, 339
_NEEDED = frozenset({_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _SAMPLES, _PLANAR, _FORMAT})
_SIZES = {1: "B", 3: "H", 4: "I", 16: "Q"}
_FORMATS = {1: "whole numbers", 2: "signed numbers", 3: "floats"}
# Pillow reads every tag three times, and takes some microseconds for each tag and each strip.
_MAX_TAGS: Final = 5_000
_MAX_PARTS: Final = 50_000
# The most that one byte can unpack to: LZW, deflate (two numbers), PackBits, Zstandard. In a JPEG each block of 8 x 8
# pixels takes a bit.
_MOST = {5: 2800, 8: 1100, 32946: 1100, 32773: 130, 50000: 33_000}
_JPEG = 7

Layout = Mapping[int, tuple[int, ...]]


def checked_layout(data: bytes) -> Layout:
    """Reads the tags that say how samples are stored.

    Returns:
        Their values by tag number; empty where the directory cannot be read, which Pillow will refuse.

    Raises:
        InvalidImage: if there are far too many tags or parts, or the samples are of a kind that Pillow gets wrong.
    """
    layout, parts = _read(data)
    if parts > _MAX_PARTS:
        raise InvalidImage("the TIFF has too many parts")
    deepest = max(layout.get(_BITS, (1,)))
    in_planes = layout.get(_PLANAR) == (2,)
    if (in_planes and (deepest > 8 or layout.get(_SAMPLES) == (2,))) or (layout.get(_FORMAT) == (2,) and deepest == 8):
        raise InvalidImage(unread(layout))
    return layout


def can_be_whole(layout: Layout, size: int) -> bool:
    """Whether as many bytes as the file has can unpack to its picture."""
    pixels = layout.get(_WIDTH, (0,))[0] * layout.get(_HEIGHT, (0,))[0]
    packed = layout.get(_COMPRESSION, (1,))[0]
    if packed == _JPEG:
        return pixels <= 8 * 64 * size
    bits = layout.get(_SAMPLES, (1,))[0] * layout.get(_BITS, (1,))[0]
    return packed not in _MOST or pixels * bits // 8 <= _MOST[packed] * size


def unread(layout: Layout) -> str:
    """Says of a TIFF that Pillow does not know what kind it is."""
    if not layout.keys() >= {_WIDTH, _HEIGHT}:
        return "the TIFF is damaged: its header cannot be read"
    bits = layout.get(_BITS, (1,))
    count = layout.get(_SAMPLES, (len(bits),))[0]
    form = _FORMATS.get(layout.get(_FORMAT, (1,))[0], "numbers of another kind")
    planes = ", in planes" if layout.get(_PLANAR) == (2,) else ""
    return (
        f"this kind of TIFF is not read: {count} sample{'s' if count > 1 else ''} of {bits[0]} bits ({form}{planes}), "
        f"photometric {layout.get(_PHOTOMETRIC, (0,))[0]}, compression {layout.get(_COMPRESSION, (1,))[0]}"
    )


def _read(data: bytes) -> tuple[Layout, int]:
    """The needed tags of the first directory, and how many strips or tiles there are."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in {b"\x2b\0", b"\0\x2b"}
    layout: dict[int, tuple[int, ...]] = {}
    parts = 0
    number, entry, inline = ("Q", "HHQ", 8) if big else ("I", "HHI", 4)
    try:
        (start,) = struct.unpack_from(order + number, data, 8 if big else 4)
        (count,) = struct.unpack_from(order + ("Q" if big else "H"), data, start)
        if count > _MAX_TAGS:
            raise InvalidImage("the TIFF has too many tags")
        at = start + (8 if big else 2)
        for _ in range(count):
            tag, kind, length = struct.unpack_from(order + entry, data, at)
            at += struct.calcsize(order + entry)
            if tag in {_STRIPS, _TILES}:
                parts = max(parts, length)
            if tag in _NEEDED and kind in _SIZES and 0 < length <= 16:
                values = f"{order}{length}{_SIZES[kind]}"
                place = at if struct.calcsize(values) <= inline else struct.unpack_from(order + number, data, at)[0]
                layout[tag] = struct.unpack_from(values, data, place)
            at += inline
    except (struct.error, OverflowError, ValueError) as error:
        if isinstance(error, InvalidImage):
            raise
    return layout, parts
