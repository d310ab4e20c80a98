"""A JPEG's header: what it is, whether its data can be whole, and only the parts that shape the picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from twinlens.encoders.errors import InvalidImage

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
# Start of frame: baseline, extended, progressive; the last two with arithmetic coding (ITU T.81, table B.1).
_READ_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_ARITHMETIC: Final = frozenset({0xC9, 0xCA})
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH: Final = frozenset({0x01, _SOI, *range(0xD0, 0xD8)})
_FILL = re.compile(rb"\xff+")
# Among a scan's data, where a zero makes 0xff a plain byte and restarts (0xd0 to 0xd7) belong to the scan.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
# Millions of empty parts fit into a file, and Pillow takes some microseconds for each.
_MAX_SEGMENTS: Final = 10_000
# Every scan goes over all blocks of the picture, and one that says nothing takes 30 bytes. Most files have up to 10.
_MAX_SCANS: Final = 40
_MAX_SCANNED_PIXELS: Final = 2_000_000_000
# Pillow starts again at the first of these each time it has read some more. Sound files have a few at most.
_ENDLESS_FILL: Final = b"\xff" * 1024


def checked_jpeg(data: bytes) -> tuple[bytes, bool]:
    """Checks the header, and drops the metadata that is not wanted.

    Comments, thumbnails, Photoshop's and other vendors' parts, further EXIF blocks, the list of further pictures (MPO)
    and what follows the picture go; JFIF, the first EXIF and XMP, the colour profile and Adobe's colour mark stay.

    Returns:
        The same picture (the same bytes where nothing was dropped), and whether its data can be whole: a decoder fills
        what is missing with grey.

    Raises:
        InvalidImage: if the header is damaged or cut off, or the file is of a kind that is not read.
    """
    kept: list[bytes | memoryview] = [data[:2]]
    seen: set[int] = set()
    frame: tuple[int, bytes] | None = None
    scan = end = 2
    dropped = False
    for marker, start, stop in _segments(data):
        dropped = dropped or start != end  # fill bytes, or junk in between
        scan, end = start, stop
        if marker == _SOS:
            break
        if marker in _FRAMES and frame is None:
            frame = (marker, data[start + 4 : stop])
        if _is_wanted(marker, data[start + 4 : min(stop, start + 40)], seen):
            kept.append(data[start:stop])
        else:
            dropped = True
    coding, pixels = _checked_frame(frame)
    scans, finish = _scans(data, scan)
    if scans > _MAX_SCANS and scans * pixels > _MAX_SCANNED_PIXELS:
        raise InvalidImage("the JPEG has too many scans")
    picture = memoryview(data)[scan:finish]
    if data.find(_ENDLESS_FILL, scan, finish) >= 0:
        raise InvalidImage("the JPEG is damaged: its picture data is broken")
    # For each block of 8 x 8 pixels at least the one bit that it takes.
    enough = coding in _ARITHMETIC or len(picture) * 8 * 64 >= pixels
    dropped = dropped or (finish is not None and finish < len(data))
    return b"".join([*kept, picture]) if dropped else data, enough and finish is not None


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields (marker, start, end) of every part up to and including the start of the first scan."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        start = data.find(b"\xff", at)
        filled = _FILL.match(data, start) if start >= 0 else None
        if filled is None or filled.end() >= len(data):
            raise InvalidImage("the JPEG is damaged: it is cut off")
        marker, at = data[filled.end()], filled.end() + 1
        start = at - 2
        if marker == _EOI:
            raise InvalidImage("the JPEG holds no picture data")
        if marker == 0:
            continue
        if marker not in _WITHOUT_LENGTH and marker != _SOS:
            length = int.from_bytes(data[at : at + 2], "big")
            if length < 2:
                raise InvalidImage("the JPEG is damaged: its header is broken")
            at += length
            if at > len(data):
                raise InvalidImage("the JPEG is damaged: it is cut off")
        yield marker, start, at
        if marker == _SOS:
            return
    raise InvalidImage("the JPEG has too many parts beside the picture")


def _is_wanted(marker: int, head: bytes, seen: set[int]) -> bool:
    match marker:
        case 0xE1:
            kind = 1 if head.startswith(b"Exif\0\0") else 2 if head.startswith(b"http://ns.adobe.com/xap/1.0/\0") else 0
            first = kind > 0 and kind not in seen
            seen.add(kind)
            return first
        case 0xE0:
            return head.startswith(b"JFIF\0")
        case 0xE2:
            return head.startswith(b"ICC_PROFILE\0") and len(head) > 14  # Pillow fails on one without its number
        case 0xEE:
            return head.startswith(b"Adobe")
        case _:
            return marker < 0xE0  # tables and frames; above are other vendors' parts and comments


def _checked_frame(frame: tuple[int, bytes] | None) -> tuple[int, int]:
    """The coding and the number of pixels."""
    if frame is None or len(frame[1]) < 6:
        raise InvalidImage("the JPEG is damaged: its header is broken")
    coding, body = frame
    if coding not in _READ_FRAMES:
        raise InvalidImage("this kind of JPEG is not read: lossless or hierarchical coding")
    if body[0] != 8:
        msg = f"this kind of JPEG is not read: {body[0]} bits a sample"
        raise InvalidImage(msg)
    height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    if height == 0 and width > 0:
        raise InvalidImage("this kind of JPEG is not read: its height is not in its header")
    return coding, width * height


def _scans(data: bytes, at: int) -> tuple[int, int | None]:
    """How many scans there are, and where the picture ends; None where it has no end.

    Goes from marker to marker as libjpeg does: phones append whole films, in which anything looks like a marker.
    """
    scans = 0
    for _ in range(_MAX_SEGMENTS):
        found = _NEXT_MARKER.search(data, at)
        if found is None:
            return scans, None
        marker, at = data[found.end() - 1], found.end()
        if marker == _EOI:
            return scans, at
        scans += marker == _SOS
        if marker >= 0xC0 and marker not in _WITHOUT_LENGTH:
            at += int.from_bytes(data[at : at + 2], "big")
    raise InvalidImage("the JPEG has too many parts beside the picture")
