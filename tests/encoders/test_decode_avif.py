"""Kinds of AVIF."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import codec_sample, difference, encode, scene
from twinlens.encoders.decode import DecodeLimits, decode_image
from twinlens.encoders.errors import InvalidImage

SMALL = scene(24, 32)
AVIF = encode(scene(), "AVIF", quality=95)


@pytest.mark.parametrize("name", ["avif_10_bit", "avif_12_bit", "avif_limited_range"])
def test_deep_samples_and_short_ranges_are_scaled(name: str) -> None:
    assert difference(decode_image(codec_sample(name)), SMALL) < 2


def test_grey_alone() -> None:
    luma = np.asarray(Image.fromarray(SMALL).convert("L"))  # the weights of BT.601, as the writer took
    decoded = decode_image(codec_sample("avif_grey"))
    assert difference(decoded, np.repeat(luma[..., None], 3, axis=2)) < 3


@pytest.mark.parametrize("name", ["avif_premultiplied", "avif_10_bit_alpha"])
def test_opacity_is_laid_over_white_whether_multiplied_or_not(name: str) -> None:
    weight = np.linspace(0, 255, 32).astype(np.uint8)[None, :, None] / 255.0
    wanted = SMALL * weight + 255 * (1 - weight)
    assert np.abs(decode_image(codec_sample(name)) - wanted).mean() < 2


def test_turned_and_mirrored_by_its_boxes() -> None:
    """First turned (anticlockwise), then mirrored (left and right)."""
    assert difference(decode_image(codec_sample("avif_turned_and_mirrored")), np.rot90(SMALL)[:, ::-1]) < 2


def test_grey_of_pillow() -> None:
    grey = scene()[..., 1].copy()
    assert difference(decode_image(encode(grey, "AVIF", quality=95)), np.repeat(grey[..., None], 3, axis=2)) < 4


@pytest.mark.parametrize("fraction", [0.1, 0.4, 0.8, 0.98])
def test_a_file_cut_short_is_refused(fraction: float) -> None:
    with pytest.raises(InvalidImage, match="AVIF"):
        decode_image(AVIF[: int(len(AVIF) * fraction)])


def test_too_many_pixels_are_refused() -> None:
    with pytest.raises(InvalidImage, match="too many pixels: 64 x 48"):
        decode_image(AVIF, limits=DecodeLimits(max_pixels=64 * 48 - 1))
