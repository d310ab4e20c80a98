"""Embedded colour profiles, against the formulas of the colour spaces in float64."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image

from tests.support.colour_profiles import DISPLAY_P3, PROPHOTO, SRGB, grey, inks, with_primaries
from tests.support.image_files import difference, encode, scene
from twinlens.encoders import colour
from twinlens.encoders.decode import decode_image

EXACT = {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}}


def linear(levels: np.ndarray) -> np.ndarray:
    """IEC 61966-2-1: from sRGB levels to light."""
    values = levels / 255.0
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def levels(light: np.ndarray) -> np.ndarray:
    """IEC 61966-2-1: from light to sRGB levels."""
    light = np.clip(light, 0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def to_srgb(pixels: np.ndarray, primaries: np.ndarray) -> np.ndarray:
    return levels(linear(pixels) @ (np.linalg.inv(SRGB) @ primaries).T)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("primaries", [DISPLAY_P3, PROPHOTO], ids=["Display P3", "ProPhoto"])
def test_wide_gamuts_are_taken_to_srgb(kind: str, primaries: np.ndarray) -> None:
    data = encode(scene(), kind, icc_profile=with_primaries(primaries), **EXACT[kind])
    wanted = to_srgb(scene(), primaries)
    assert np.abs(wanted - scene()).mean() > 3
    np.testing.assert_allclose(decode_image(data), wanted, atol=4)


@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_wide_gamuts_of_lossy_formats(kind: str) -> None:
    data = encode(scene(), kind, quality=95, subsampling="4:4:4", icc_profile=with_primaries(DISPLAY_P3))
    wanted = np.rint(to_srgb(scene(), DISPLAY_P3)).astype(np.uint8)
    assert difference(decode_image(data), wanted) < difference(scene(), wanted) / 2


def test_a_reduced_jpeg_is_converted_too() -> None:
    stored = scene(400, 600)
    data = encode(stored, "JPEG", quality=95, icc_profile=with_primaries(PROPHOTO))
    reduced = decode_image(data, min_side=50)
    wanted = Image.fromarray(np.rint(to_srgb(stored, PROPHOTO)).astype(np.uint8)).resize(reduced.shape[1::-1])
    assert difference(reduced, np.asarray(wanted)) < 6


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("gamma", [1.4, 1.8, 2.6])
def test_grey_with_a_gamma_of_its_own(kind: str, gamma: float) -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    decoded = decode_image(encode(ramp, kind, icc_profile=grey(gamma)))
    np.testing.assert_allclose(decoded[..., 1], levels((ramp / 255.0) ** gamma), atol=3)
    assert np.ptp(decoded.astype(int), axis=2).max() <= 1


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_inks_by_the_profile_of_their_printer(kind: str) -> None:
    """By this profile only black prints; without it cyan would show."""
    stored = np.zeros((16, 32, 4), np.uint8)
    stored[:, 8:16, 0] = 220
    stored[:, 16:24, 3] = 128
    stored[:, 24:, 3] = 255
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    data = encode(Image.fromarray(stored, "CMYK"), kind, icc_profile=inks([0, 0, 0, 1]), **options)
    shown = decode_image(data)[8, [4, 12, 20, 28]].astype(int)
    assert np.ptp(shown, axis=1).max() <= 4
    assert shown[0].min() > 245
    assert shown[1].min() > 245
    assert 90 < shown[2].mean() < 150  # L* of about 50
    assert shown[3].max() < 10
    cyan = decode_image(encode(Image.fromarray(stored, "CMYK"), kind, **options))[8, 12].astype(int)
    assert cyan[0] < 60


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "CMYK", "1", "I;16"])
def test_a_profile_of_another_model_counts_as_none(mode: str) -> None:
    wrong = inks([0, 0, 0, 1]) if mode != "CMYK" else grey(1.0)
    if mode == "I;16":
        picture = Image.fromarray(scene()[..., 1].astype(np.uint16) * 257)
    elif mode == "P":
        picture = Image.fromarray(scene()).quantize(32)
    else:
        picture = Image.fromarray(scene()).convert(mode)
    kind = "TIFF" if mode == "CMYK" else "PNG"
    np.testing.assert_array_equal(
        decode_image(encode(picture, kind, icc_profile=wrong)), decode_image(encode(picture, kind))
    )


@pytest.mark.parametrize("profile", [with_primaries(DISPLAY_P3), grey(2.2), inks([0.3, 0.3, 0.3, 1])])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_a_damaged_profile_never_costs_the_picture(kind: str, profile: bytes) -> None:
    dice = random.Random(kind)
    for _ in range(40):
        changed = bytearray(profile)
        for _ in range(dice.choice((1, 3, 20))):
            changed[dice.randrange(len(changed))] = dice.choice((0, 0xFF, dice.randrange(256)))
        cut = bytes(changed[: dice.choice((len(changed), dice.randrange(1, len(changed))))])
        assert decode_image(encode(scene(8, 8), kind, icc_profile=cut)).shape == (8, 8, 3)


@pytest.mark.parametrize("kind", ["TIFF", "WEBP", "JPEG"])
def test_a_profile_of_many_megabytes_counts_as_none(kind: str) -> None:
    profile = with_primaries(PROPHOTO) + bytes(5_000_000)
    plain = encode(scene(), kind)
    np.testing.assert_array_equal(decode_image(encode(scene(), kind, icc_profile=profile)), decode_image(plain))


def test_a_profile_is_parsed_once() -> None:
    colour._transform.cache_clear()
    data = encode(scene(), "PNG", icc_profile=with_primaries(DISPLAY_P3))
    for _ in range(5):
        decode_image(data)
    assert colour._transform.cache_info().misses == 1
    assert colour._transform.cache_info().hits == 4
