"""Large pictures are converted by strips; here the strips are made so small that every picture has many."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import chunk, encode, png, scene, swapped_profile
from tests.support.tiff_files import tiff
from twinlens.encoders import colour, deep_samples
from twinlens.encoders.decode import decode_image

RAMP = np.linspace(0, 65535, 48 * 64).reshape(48, 64)
RGBA = np.dstack([scene(), np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))])
INDEXED = Image.fromarray(scene()).quantize(16)
FILES = {
    "RGB": encode(scene()),
    "profile": encode(scene(), icc_profile=swapped_profile()),
    "RGBA": encode(RGBA),
    "LA": encode(Image.fromarray(RGBA[..., 1:3].copy(), "LA")),
    "palette": encode(INDEXED),
    "palette with a transparent index": encode(INDEXED, transparency=3),
    "palette with alpha": encode(INDEXED, transparency=bytes(range(0, 256, 16))),
    "grey": encode(scene()[..., 0].copy()),
    "one bit": encode(Image.fromarray(scene()[..., 0] > 99)),
    "grey key": png(scene()[..., :1], 8, 0, before=[chunk(b"tRNS", struct.pack(">H", 12))]),
    "colour key": png(scene(), 8, 2, before=[chunk(b"tRNS", struct.pack(">HHH", 230, 40, 60))]),
    "16 bit": encode(RAMP.astype(np.uint16)),
    "16 bit, big endian": tiff(RAMP.astype(">u2").tobytes(), 64, 48, {}, order=">"),
    "32 bit": encode(RAMP.astype(np.int32), "TIFF"),
    "float": encode((RAMP - 30000).astype(np.float32), "TIFF"),
    "CMYK": encode(Image.fromarray(scene()).convert("CMYK"), "TIFF"),
    "CMYK JPEG": encode(Image.fromarray(scene()).convert("CMYK"), "JPEG"),
    "LAB": encode(Image.new("LAB", (64, 48), (90, 150, 110)), "TIFF"),
    "GIF": encode(INDEXED, "GIF", transparency=2),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("pixels", [1, 64, 64 * 5, 64 * 47])
def test_strips_give_the_same_picture_as_the_whole(name: str, pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decode_image(FILES[name])
    monkeypatch.setattr(colour, "_STRIP_PIXELS", pixels)
    monkeypatch.setattr(deep_samples, "_ROWS_PIXELS", pixels)
    np.testing.assert_array_equal(decode_image(FILES[name]), whole)
