"""ICC profiles made to order (ICC.1:2010): other primaries, grey with a gamma, inks by table."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import ImageCms

# Columns: the primaries' XYZ, adapted to D50.
SRGB = np.array([[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]])
DISPLAY_P3 = np.array([[0.51512, 0.29198, 0.15710], [0.24120, 0.69225, 0.06657], [-0.00105, 0.04189, 0.78407]])
PROPHOTO = np.array([[0.79767, 0.13519, 0.03135], [0.28804, 0.71188, 0.00009], [0.0, 0.0, 0.82491]])


def with_primaries(primaries: NDArray[np.float64]) -> bytes:
    """sRGB's profile with other primaries and its own curve."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    (count,) = struct.unpack_from(">I", profile, 128)
    for i in range(count):
        tag, offset, _ = struct.unpack_from(">4sII", profile, 132 + 12 * i)
        if tag in {b"rXYZ", b"gXYZ", b"bXYZ"}:
            column = primaries[:, b"rgb".index(tag[:1])]
            struct.pack_into(">3i", profile, offset + 8, *(round(float(value) * 65536) for value in column))
    return bytes(profile)


def grey(gamma: float) -> bytes:
    """A profile of one channel."""
    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round(gamma * 256)) + bytes(2)
    return _profile(b"GRAY", b"XYZ ", {b"kTRC": curve})


def inks(lightness: Sequence[float]) -> bytes:
    """A CMYK profile by which each ink alone takes that much lightness (0–1), and leaves all colour away."""
    grid = np.array([[c, m, y, k] for c in (0, 1) for m in (0, 1) for y in (0, 1) for k in (0, 1)], dtype=np.float64)
    left = np.clip(1 - grid @ np.asarray(lightness, dtype=np.float64), 0, 1)
    table = np.stack([np.rint(left * 255), np.full(16, 128), np.full(16, 128)], axis=1).astype(np.uint8)
    ramp = bytes(range(256))
    identity = struct.pack(">9i", *(65536 if i % 4 == 0 else 0 for i in range(9)))
    lut = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + identity + ramp * 4 + table.tobytes() + ramp * 3
    return _profile(b"CMYK", b"Lab ", {b"A2B0": lut}, kind=b"prtr")


def _profile(space: bytes, connection: bytes, tags: Mapping[bytes, bytes], *, kind: bytes = b"mntr") -> bytes:
    text = b"text" + bytes(4) + b"none\0" + bytes(3)
    name = b"desc" + bytes(4) + struct.pack(">I", 2) + b"x\0" + bytes(78)
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    every = {b"cprt": text, b"desc": name + bytes(-len(name) % 4), b"wtpt": white, **tags}
    start = 128 + 4 + 12 * len(every)
    table, body = struct.pack(">I", len(every)), b""
    for tag, content in every.items():
        table += struct.pack(">4sII", tag, start + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    head = struct.pack(">I4sI4s4s4s", start + len(body), b"none", 0x02400000, kind, space, connection)
    head += bytes(12) + b"acsp" + bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return head.ljust(128, b"\0") + table + body
