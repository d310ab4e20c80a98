"""Small or legal files that claim, repeat or unpack far more than they should: by header, by metadata, by frames."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from tests.support.bmp_files import bmp
from tests.support.gif_files import gif
from tests.support.image_files import PNG_SIGNATURE, chunk, encode, png, scene
from tests.support.jpeg_files import APP2, COMMENT, segment, with_frame, with_segments
from tests.support.tiff_files import BITS, ROWS, tiff, tiff_of_parts, tiff_of_pixels

RGB = scene()
# Just below the limit of pixels, and far beyond it.
CLAIM = 9_990
BEYOND = 30_000


def _header(side: int, depth: int = 8, colour: int = 2) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, 0))


def claims() -> Iterator[tuple[str, bytes]]:
    """Headers that promise pixels which the data does not have."""
    for side in (CLAIM, BEYOND):
        pixels = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
        yield f"PNG {side}", PNG_SIGNATURE + _header(side) + pixels
        yield f"deep PNG {side}", PNG_SIGNATURE + _header(side, 16, 6) + pixels
        for progressive in (False, True):
            jpeg = with_frame(encode(RGB, "JPEG", progressive=progressive), size=(side, side))
            yield f"JPEG {side} {progressive}", jpeg
            yield f"JPEG without an end {side} {progressive}", jpeg[:-2]
        yield f"BMP {side}", bmp([bytes(100)], side, 24, height=side)
        yield f"BMP runs {side}", bmp([b"\0\1"], side, 8, compression=1, palette=bytes(1024), height=side)
        yield f"TIFF {side}", tiff(bytes(100), side, side, {BITS: 8})
        for packed in (5, 8, 32773, 7, 50000):
            yield f"TIFF {packed} {side}", tiff(bytes(1000), side, side, {BITS: 8, 259: packed})
        data = bytearray(gif([(RGB[..., 1], (0, 0))], (64, 48), bytes(768)))
        data[786:790] = struct.pack("<HH", side, side)
        yield f"GIF {side}", bytes(data)
        data[781:781] = b"\x21\xf9\4\x08\0\0\0\0"  # afterwards the background, which has to be prepared
        yield f"GIF with a background {side}", bytes(data)
        if side < 1 << 14:
            webp = bytearray(encode(RGB, "WEBP"))
            webp[26:30] = struct.pack("<HH", side, side)
            yield f"WebP {side}", bytes(webp)
    frames = gif([(RGB[..., 1], (BEYOND // 2, BEYOND // 2))], (64, 48), bytes(768), disposal=2)
    yield "GIF frame far off", frames
    avif = bytearray(encode(RGB, "AVIF"))
    start = avif.index(b"ispe") + 8
    avif[start : start + 8] = struct.pack(">II", BEYOND, BEYOND)
    yield "AVIF", bytes(avif)


def too_many_parts(size: int) -> Iterator[tuple[str, bytes]]:
    """Files of about `size` bytes that consist of next to nothing, over and over."""
    jpeg = encode(RGB, "JPEG")
    yield "JPEG comments", with_segments(jpeg, segment(COMMENT) * (size // 4))
    yield "JPEG vendors", with_segments(jpeg, segment(0xE5) * (size // 4))
    yield "JPEG fill bytes in the picture", jpeg[:-2] + b"\xff" * size + jpeg[-2:]
    large = encode(np.zeros((3000, 4000, 3), np.uint8), "JPEG", progressive=True)
    scan = large[large.rindex(b"\xff\xda") : -2]
    yield "JPEG scans", large[:-2] + scan * 20_000 + large[-2:]
    # What looks like the end lies in a comment, which a decoder passes over.
    yield "JPEG scans behind an end", large[:-2] + segment(COMMENT, b"\xff\xd9") + scan * 20_000 + large[-2:]
    yield "JPEG parts between scans", large[:-2] + segment(COMMENT) * (size // 4) + large[-2:]
    yield "PNG texts", png(RGB, 8, 2, before=[chunk(b"tEXt", b"") * (size // 12)])
    yield "PNG pixels", png(RGB, 8, 2, after=[chunk(b"IDAT", b"") * (size // 12)])
    one = gif([(RGB[..., 1], (0, 0))], (64, 48), bytes(768))
    yield "GIF comments", one[:781] + b"\x21\xfe\1a\0" * (size // 5) + one[781:]
    yield "GIF comment of single bytes", one[:781] + b"\x21\xfe" + b"\1a" * (size // 2) + b"\0" + one[781:]
    yield "GIF junk", one[:781] + b"\1" * size + one[781:]
    yield "BMP runs", bmp([b"\1\3" * (size // 2)], 3000, 8, compression=1, palette=bytes(1024), height=3000)
    entries = struct.pack("<HHQQ", 60_000, 4, 1, 0) * (size // 20)
    yield "TIFF tags", b"II+\0" + struct.pack("<HHQQ", 8, 0, 16, size // 20) + entries + bytes(8)
    yield "TIFF strips", tiff_of_parts([b"\1"] * 60_000, 1, 60_000, {BITS: 8, ROWS: 1})


def heavy_metadata(size: int) -> Iterator[tuple[str, bytes]]:
    """Sound pictures of the scene beside metadata that unpacks to, or is, `size` bytes."""
    jpeg = encode(RGB, "JPEG")
    packed = zlib.compress(bytes(size * 8))
    yield "PNG zTXt", png(RGB, 8, 2, before=[chunk(b"zTXt", b"Comment\0\0" + packed)])
    yield "PNG iTXt", png(RGB, 8, 2, before=[chunk(b"iTXt", b"Comment\0\1\0\0\0" + packed)])
    yield "PNG XMP", png(RGB, 8, 2, before=[chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + packed)])
    yield "PNG plain XMP", png(RGB, 8, 2, before=[chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + bytes(size))])
    yield "PNG profile", png(RGB, 8, 2, before=[chunk(b"iCCP", b"name\0\0" + packed)])
    yield "PNG EXIF", png(RGB, 8, 2, before=[chunk(b"eXIf", b"II*\0" + bytes(size))])
    entries = b"".join(struct.pack("<HHII", tag, 7, size - 1000, 8) for tag in range(65_535))
    directory = b"II*\0\x08\0\0\0" + struct.pack("<H", 65_535) + entries
    yield "PNG EXIF of many tags", png(RGB, 8, 2, before=[chunk(b"eXIf", directory + bytes(size))])
    yield "PNG pixels that unpack on and on", _endless_pixels(size * 8)
    blocks = size // 65_000
    yield "JPEG EXIF", with_segments(jpeg, segment(0xE1, b"Exif\0\0" + bytes(65_000)) * blocks)
    short = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 5_000) + entries[: 12 * 5_000]
    yield "JPEG EXIF of many tags", with_segments(jpeg, segment(0xE1, short))
    yield "JPEG profile", with_segments(jpeg, segment(APP2, b"ICC_PROFILE\0\1\xff" + bytes(65_000)) * min(blocks, 255))
    yield "JPEG fill bytes", with_segments(jpeg, b"\xff" * size)
    resources = b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\0" * 5_000
    yield "JPEG Photoshop", with_segments(jpeg, segment(0xED, resources) * blocks)
    tags = dict.fromkeys(range(50000, 54000), 0)
    yield "TIFF tags", tiff_of_pixels(RGB, tags)
    frames = Image.fromarray(RGB).quantize(256)
    still = encode(frames, "GIF")
    start = still.index(b"\x2c", 13 + 768)
    yield "GIF frames", still[:-1] + still[start:-1] * (size // len(still)) + b";"


def _endless_pixels(size: int) -> bytes:
    rows = b"".join(b"\0" + row.tobytes() for row in RGB)
    return png(RGB, 8, 2)[:33] + chunk(b"IDAT", zlib.compress(rows + bytes(size))) + chunk(b"IEND", b"")
