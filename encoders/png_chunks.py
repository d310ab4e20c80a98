"""What Pillow leaves undone for PNG: checksums of pixel data, and metadata that unpacks a thousandfold."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from twinlens.encoders.errors import InvalidImage

_SIGNATURE_LENGTH = 8
# Where the header has the colour type, and the one that has a palette.
_COLOUR_TYPE, _INDEXED = 25, 3
# Pillow unpacks no more than this.
_MAX_PROFILE = 1024 * 1024
# Other metadata is copied several times over on its way through Pillow.
_MAX_METADATA = 1024 * 1024
# Millions of empty chunks fit into a file, and each takes some microseconds.
_MAX_CHUNKS = 100_000
_XMP_KEYWORD = b"XML:com.adobe.xmp\0"

# Text may unpack a thousandfold; animation frames after the first are not wanted, nor are private chunks.
_KEPT = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})


def checked_png(data: bytes) -> bytes:
    """Verifies the chunk structure and checksums, and drops what the first frame does not need.

    A critical chunk with a wrong checksum is refused (Pillow would hand back mostly wrong pixels); an ancillary one is
    dropped, as libpng does. Bytes after the end chunk are dropped too.

    Returns:
        The same picture with only the chunks that shape its pixels and colours.

    Raises:
        InvalidImage: if the file is cut off or damaged, or has no pixels.
    """
    view = memoryview(data)
    kept = [view[:_SIGNATURE_LENGTH]]
    seen_pixels = False
    colours = 0
    for kind, start, end in _chunks(data):
        body = view[start + 8 : end - 4]
        stored = int.from_bytes(view[end - 4 : end], "big")
        if zlib.crc32(view[start + 4 : end - 4]) != stored:
            if not kind[0] & 0x20:
                msg = f"the PNG is damaged: the checksum of its {kind.decode('ascii')} part is wrong"
                raise InvalidImage(msg)
            continue
        if kind == b"IHDR":
            _check_header(bytes(body))
        elif kind == b"PLTE":
            colours = len(body) // 3
        elif kind == b"IDAT":
            if not seen_pixels and data[_COLOUR_TYPE] == _INDEXED and not colours:
                raise InvalidImage("the PNG is damaged: it has no palette")
            seen_pixels = True
        if (
            kind in _KEPT
            or (kind == b"tRNS" and _is_possible_transparency(len(body), data[_COLOUR_TYPE], colours))
            or (kind == b"eXIf" and len(body) <= _MAX_METADATA)
            or (kind == b"iTXt" and _is_plain_xmp(body))
            or (kind == b"iCCP" and _is_sound_profile(body))
        ):
            kept.append(view[start:end])
    if not seen_pixels:
        raise InvalidImage("the PNG holds no picture data")
    return b"".join(kept)


def bit_depth(data: bytes) -> int:
    """Bits a sample, from the header."""
    return data[24]


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields (type, start, end) of every chunk up to and including IEND."""
    start = _SIGNATURE_LENGTH
    for _ in range(_MAX_CHUNKS):
        if start + 12 > len(data):
            raise InvalidImage("the PNG is cut off")
        length = int.from_bytes(data[start : start + 4], "big")
        kind = data[start + 4 : start + 8]
        if not kind.isalpha():
            raise InvalidImage("the PNG is damaged: it has a part with an impossible name")
        end = start + 12 + length
        if end > len(data):
            raise InvalidImage("the PNG is cut off")
        if kind == b"CgBI":
            raise InvalidImage("this kind of PNG is not read: Apple's own, as in iPhone applications")
        if start == _SIGNATURE_LENGTH and (kind != b"IHDR" or length != 13):
            raise InvalidImage("the PNG is damaged: it does not begin with its header")
        yield kind, start, end
        if kind == b"IEND":
            return
        start = end
    raise InvalidImage("the PNG has too many parts")


def _is_possible_transparency(length: int, colour_type: int, colours: int) -> bool:
    """Whether a transparent colour or opacities fit the colour type; Pillow fails on others, libpng skips them."""
    return 0 < length <= colours if colour_type == _INDEXED else length == {0: 2, 2: 6}.get(colour_type)


def _is_plain_xmp(body: memoryview) -> bool:
    """XMP may hold the orientation; only its uncompressed form is read."""
    head = bytes(body[: len(_XMP_KEYWORD) + 1])
    return len(body) <= _MAX_METADATA and head == _XMP_KEYWORD + b"\0"


def _is_sound_profile(body: memoryview) -> bool:
    """Whether Pillow can unpack a colour profile; one it cannot would cost it the picture."""
    name, _, rest = bytes(body).partition(b"\0")
    if not name or not rest or rest[0] != 0:
        return False
    unpacker = zlib.decompressobj()
    try:
        unpacker.decompress(rest[1:], _MAX_PROFILE)
    except zlib.error:
        return False
    return unpacker.eof


def _check_header(header: bytes) -> None:
    if header[:4] == b"\0\0\0\0" or header[4:8] == b"\0\0\0\0":
        raise InvalidImage("the picture has no pixels")
