"""What a WebP's first bytes tell (RFC 9649), before a decoder takes memory for the picture."""

from __future__ import annotations


def canvas_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of the canvas; None where the header is not one we know, which the decoder will refuse."""
    if len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
            return width & 0x3FFF, height & 0x3FFF
    return None


def can_be_whole(data: bytes) -> bool:
    """Whether all bytes are there that the header claims, and in a plain lossy picture enough for its size.

    In a key frame each macroblock of 16 x 16 pixels takes at least three bits for its modes, whose odds are fixed (RFC
    6386, section 11.2). Other kinds may need next to none.
    """
    if 8 + int.from_bytes(data[4:8], "little") > len(data):
        return False
    size = canvas_size(data)
    if size is None or data[12:16] != b"VP8 ":
        return True
    return -(-size[0] // 16) * -(-size[1] // 16) <= 4 * len(data)
