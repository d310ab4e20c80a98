"""Encoded pictures for decode tests, and a writer of PNG files that Pillow would not write."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def scene(height: int = 48, width: int = 64, seed: int = 0) -> NDArray[np.uint8]:
    """A smooth picture without symmetry, so that every flip, rotation and channel swap shows."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    red = 255 * x / max(1, width - 1)
    green = 255 * y / max(1, height - 1)
    blue = 127 + 100 * np.sin(x / 7.0 + rng.random()) * np.cos(y / 11.0)
    picture = np.stack([red, green, blue], axis=-1)
    picture[: height // 3, : width // 4] = (230, 40, 60)
    return np.asarray(np.clip(picture, 0, 255), dtype=np.uint8)


def encode(picture: NDArray[Any] | Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    image.save(stream, kind, **options)
    return stream.getvalue()


def codec_sample(name: str) -> bytes:
    """A file that Pillow cannot write, of `scene(24, 32)`; how each was made is in the file beside this one."""
    samples = json.loads(Path(__file__).with_name("codec_samples.json").read_text(encoding="ascii"))
    return base64.b64decode(samples[name])


def difference(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """Mean absolute difference of two pictures of the same shape, in levels of 255."""
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    return float(np.abs(a.astype(np.int64) - b.astype(np.int64)).mean())


def chunk(kind: bytes, body: bytes, *, crc: int | None = None) -> bytes:
    """A PNG chunk, with its right checksum unless another is given."""
    checksum = zlib.crc32(kind + body) if crc is None else crc
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def png(
    samples: NDArray[Any], depth: int, colour_type: int, *, before: Sequence[bytes] = (), after: Sequence[bytes] = ()
) -> bytes:
    """Writes a PNG of any depth.

    Args:
        samples: Values at the stored depth, shape (h, w, channels).
        depth: Bits a sample: 1, 2, 4, 8 or 16.
        colour_type: 0 grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGBA.
        before: Ready chunks to put before the pixels.
        after: Ready chunks to put after the pixels.
    """
    height, width, _ = samples.shape
    flat = samples.reshape(height, -1)
    if depth == 16:
        rows = [row.astype(">u2").tobytes() for row in flat]
    elif depth == 8:
        rows = [row.astype(np.uint8).tobytes() for row in flat]
    else:
        bits = (flat[..., None].astype(np.uint8) >> np.arange(depth - 1, -1, -1, dtype=np.uint8)) & 1
        rows = [np.packbits(row.reshape(-1)).tobytes() for row in bits]
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    return b"".join([PNG_SIGNATURE, chunk(b"IHDR", header), *before, chunk(b"IDAT", data), *after, chunk(b"IEND", b"")])


def swapped_profile() -> bytes:
    """An sRGB profile whose red and blue primaries are exchanged: a picture with it is meant to be shown as BGR."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    (count,) = struct.unpack_from(">I", profile, 128)
    entries = {bytes(profile[132 + 12 * i : 136 + 12 * i]): 136 + 12 * i for i in range(count)}
    red, blue = entries[b"rXYZ"], entries[b"bXYZ"]
    profile[red : red + 8], profile[blue : blue + 8] = profile[blue : blue + 8], profile[red : red + 8]
    return bytes(profile)
