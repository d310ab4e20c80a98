from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import PNG_SIGNATURE, chunk, difference, encode, png, scene
from twinlens.encoders.decode import decode_image


def frames() -> list[Image.Image]:
    return [Image.fromarray(scene(seed=0)), Image.fromarray(scene(seed=1)[::-1].copy())]


@pytest.mark.parametrize(
    ("kind", "options"), [("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {})], ids=["WebP", "APNG", "TIFF"]
)
def test_the_first_frame_is_taken(kind: str, options: dict[str, object]) -> None:
    first, second = frames()
    data = encode(first, kind, save_all=True, append_images=[second], **options)
    np.testing.assert_array_equal(decode_image(data), np.asarray(first))


def test_the_first_frame_of_a_gif_is_taken() -> None:
    first, second = (frame.quantize(64) for frame in frames())
    data = encode(first, "GIF", save_all=True, append_images=[second])
    np.testing.assert_array_equal(decode_image(data), np.asarray(first.convert("RGB")))


def test_the_first_frame_of_an_avif_is_taken() -> None:
    first, second = frames()
    data = encode(first, "AVIF", save_all=True, append_images=[second], quality=95)
    assert difference(decode_image(data), np.asarray(first)) < 4


def test_the_first_picture_of_an_mpo_is_taken() -> None:
    first, second = frames()
    data = encode(first, "MPO", save_all=True, append_images=[second], quality=95, subsampling=0)
    assert difference(decode_image(data), np.asarray(first)) < 3


def test_a_png_whose_still_picture_is_no_frame_shows_the_still_picture() -> None:
    still = scene()
    moving = scene(seed=1)[::-1].copy()
    plain = png(moving, 8, 2)
    start = plain.index(b"IDAT")
    (length,) = struct.unpack(">I", plain[start - 4 : start])
    body = plain[start + 4 : start + 4 + length]
    control = struct.pack(">IIIIIHHBB", 0, 64, 48, 0, 0, 1, 10, 0, 0)
    data = png(
        still,
        8,
        2,
        before=[chunk(b"acTL", struct.pack(">II", 1, 0))],
        after=[chunk(b"fcTL", control), chunk(b"fdAT", struct.pack(">I", 1) + body)],
    )
    assert data.startswith(PNG_SIGNATURE)
    np.testing.assert_array_equal(decode_image(data), still)
