"""A GIF's first frame: before it there can be megabytes of comments."""

from __future__ import annotations

from typing import Final, NamedTuple

from twinlens.encoders.errors import InvalidImage

Box = tuple[int, int, int, int]

_HEADER_LENGTH = 13
_EXTENSION, _DESCRIPTOR, _TRAILER, _CONTROL = 0x21, 0x2C, 0x3B, 0xF9
# Comments are chains of up to 255 bytes a link, and Pillow takes some microseconds for each.
_MAX_LINKS: Final = 500_000


class FirstFrame(NamedTuple):
    """A GIF without what comes before its first frame.

    Attributes:
        data: The file.
        box: Where the frame lies on the canvas: left, top, right, bottom.
        size: Width and height of the picture: the canvas, or more where the frame reaches beyond it.
    """

    data: bytes
    box: Box
    size: tuple[int, int]


def first_frame(data: bytes) -> FirstFrame:
    """Drops comments and applications' blocks before the first frame.

    Raises:
        InvalidImage: if the file is cut off or holds no frame.
    """
    if len(data) < _HEADER_LENGTH:
        raise InvalidImage("the GIF is damaged: it is cut off")
    flags = data[10]
    head = _HEADER_LENGTH + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    at, links, control = head, 0, b""
    while at < len(data) and data[at] != _TRAILER:
        links += 1
        if data[at] == _DESCRIPTOR:
            if at + 10 > len(data):
                break
            left, top, width, height = (int.from_bytes(data[at + i : at + i + 2], "little") for i in (1, 3, 5, 7))
            if width == 0 or height == 0:
                raise InvalidImage("the picture has no pixels")
            box = (left, top, left + width, top + height)
            canvas = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
            kept = b"".join((data[:head], control, memoryview(data)[at:]))
            return FirstFrame(kept, box, (max(canvas[0], box[2]), max(canvas[1], box[3])))
        if data[at] != _EXTENSION:
            at += 1  # as Pillow does with what is no block
        else:
            start, at = at, at + 2
            while at < len(data) and data[at] and links < _MAX_LINKS:
                at += 1 + data[at]
                links += 1
            at += 1
            if data[start + 1 : start + 2] == bytes([_CONTROL]):
                control = _without_disposal(data[start:at])
        if links >= _MAX_LINKS:
            raise InvalidImage("the GIF has too many parts beside the picture")
    if at < len(data):
        raise InvalidImage("the GIF holds no picture")
    raise InvalidImage("the GIF is damaged: it is cut off")


def _without_disposal(control: bytes) -> bytes:
    """What happens to the frame later does not matter, and for that Pillow would prepare a further canvas."""
    return control[:3] + bytes(flags & ~0x1C for flags in control[3:4]) + control[4:]
