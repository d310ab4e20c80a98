from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import chunk, encode, png, scene
from twinlens.encoders.decode import decode_image


def over_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The Porter-Duff `over` onto white, in float64."""
    weight = alpha.astype(np.float64)[..., None] / 255
    return colours.astype(np.float64) * weight + 255 * (1 - weight)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_rgba_is_laid_over_white(kind: str) -> None:
    alpha = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    decoded = decode_image(encode(np.dstack([scene(), alpha]), kind, **options))
    np.testing.assert_allclose(decoded, over_white(scene(), alpha), atol=1)


def test_grey_with_alpha_is_laid_over_white() -> None:
    samples = np.dstack([scene()[..., 1], np.full((48, 64), 100, np.uint8)])
    decoded = decode_image(encode(Image.fromarray(samples, "LA")))
    wanted = over_white(np.repeat(samples[..., :1], 3, axis=2), samples[..., 1])
    np.testing.assert_allclose(decoded, wanted, atol=1)


def test_hidden_colours_never_show() -> None:
    alpha = np.zeros((48, 64), np.uint8)
    alpha[10:30, 10:30] = 255
    hidden = [np.zeros((48, 64, 3), np.uint8), scene(), np.full((48, 64, 3), (255, 0, 255), np.uint8)]
    for colours in hidden:
        colours[10:30, 10:30] = (20, 90, 200)
    pictures = [decode_image(encode(np.dstack([colours, alpha]))) for colours in hidden]
    assert pictures[0][0, 0].tolist() == [255, 255, 255]
    np.testing.assert_array_equal(pictures[0], pictures[1])
    np.testing.assert_array_equal(pictures[0], pictures[2])


def test_a_wholly_transparent_picture_is_white() -> None:
    assert decode_image(encode(np.zeros((9, 9, 4), np.uint8))).min() == 255


class TestPalette:
    def indexed(self) -> Image.Image:
        return Image.fromarray(scene()).quantize(16)

    def test_a_transparent_index_is_white(self) -> None:
        picture = self.indexed()
        wanted = np.asarray(picture.convert("RGB")).copy()
        wanted[np.asarray(picture) == 5] = 255
        for kind in ("PNG", "GIF"):
            np.testing.assert_array_equal(decode_image(encode(picture, kind, transparency=5)), wanted)

    def test_an_alpha_table_is_laid_over_white(self) -> None:
        picture = self.indexed()
        table = bytes(range(0, 256, 16))
        alpha = np.frombuffer(table, np.uint8)[np.asarray(picture)]
        decoded = decode_image(encode(picture, "PNG", transparency=table))
        np.testing.assert_allclose(decoded, over_white(np.asarray(picture.convert("RGB")), alpha), atol=1)


class TestColourKey:
    @pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
    def test_grey_key_is_compared_at_the_stored_depth(self, depth: int) -> None:
        top = (1 << depth) - 1
        key = top // 2 if depth > 1 else 0
        levels = np.array(sorted({0, key, top})).reshape(1, -1, 1)
        decoded = decode_image(png(levels, depth, 0, before=[chunk(b"tRNS", struct.pack(">H", key))]))
        wanted = np.where(levels == key, 255, np.rint(levels * 255 / top))[0, :, 0]
        np.testing.assert_allclose(decoded[0, :, 0], wanted, atol=1)

    @pytest.mark.parametrize("depth", [8, 16])
    def test_rgb_key_hides_only_that_colour(self, depth: int) -> None:
        scale = 1 if depth == 8 else 257
        colours = np.array([[[10, 20, 30], [10, 20, 31], [200, 20, 30], [0, 0, 0]]])
        trns = chunk(b"tRNS", struct.pack(">HHH", 10 * scale, 20 * scale, 30 * scale))
        decoded = decode_image(png(colours * scale, depth, 2, before=[trns]))
        wanted = colours.copy()
        wanted[0, 0] = 255
        np.testing.assert_array_equal(decoded, wanted)
