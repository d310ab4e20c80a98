from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import chunk, difference, encode, png, scene, swapped_profile
from tests.support.tiff_files import ORDERS, tiff
from twinlens.encoders.decode import decode_image


def grey() -> np.ndarray:
    return scene()[..., 1].copy()


def as_rgb(samples: np.ndarray) -> np.ndarray:
    return np.repeat(samples[..., None], 3, axis=2)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_rgb_survives_unchanged(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    decoded = decode_image(encode(scene(), kind, **options))
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    assert decoded.flags.writeable
    np.testing.assert_array_equal(decoded, scene())


@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_lossy_formats_come_close(kind: str) -> None:
    assert difference(decode_image(encode(scene(), kind, quality=95)), scene()) < 4


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF"])
def test_grey_becomes_three_equal_channels(kind: str) -> None:
    np.testing.assert_array_equal(decode_image(encode(grey(), kind)), as_rgb(grey()))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP"])
def test_one_bit_is_black_and_white(kind: str) -> None:
    bits = grey() > 127
    decoded = decode_image(encode(Image.fromarray(bits), kind))
    np.testing.assert_array_equal(decoded, as_rgb(bits.astype(np.uint8) * 255))


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_palette_is_expanded(kind: str) -> None:
    indexed = Image.fromarray(scene()).quantize(64)
    np.testing.assert_array_equal(decode_image(encode(indexed, kind)), np.asarray(indexed.convert("RGB")))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_shallow_grey_is_scaled_to_the_full_range(depth: int) -> None:
    top = (1 << depth) - 1
    levels = np.arange(top + 1).reshape(1, -1, 1)
    np.testing.assert_array_equal(decode_image(png(levels, depth, 0)), as_rgb((levels * 255 // top)[..., 0]))


class TestCmyk:
    def test_adobe_jpeg_is_the_right_way_round(self) -> None:
        data = encode(Image.fromarray(scene()).convert("CMYK"), "JPEG", quality=95, subsampling=0)
        assert b"Adobe" in data
        assert difference(decode_image(data), scene()) < 4

    def test_tiff_is_the_right_way_round(self) -> None:
        data = encode(Image.fromarray(scene()).convert("CMYK"), "TIFF")
        assert difference(decode_image(data), scene()) < 1

    def test_white_paper_is_white(self) -> None:
        blank = Image.new("CMYK", (20, 20), (0, 0, 0, 0))
        for kind in ("JPEG", "TIFF"):
            assert decode_image(encode(blank, kind)).min() == 255


def test_lab_is_shown_in_colour() -> None:
    lab = Image.new("LAB", (8, 8), (150, 128, 128))
    decoded = decode_image(encode(lab, "TIFF"))
    assert int(decoded.max()) - int(decoded.min()) <= 3  # neutral
    assert 130 < decoded.mean() < 150


class TestDeepSamples:
    def test_sixteen_bit_grey_is_scaled_not_clipped(self) -> None:
        ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
        wanted = as_rgb(np.rint(ramp / 257.0).astype(np.uint8))
        for data in (encode(ramp, "PNG"), encode(ramp, "TIFF")):
            np.testing.assert_array_equal(decode_image(data), wanted)

    def test_sixteen_bit_tiff_of_either_byte_order(self) -> None:
        ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
        for order in ORDERS:
            data = tiff(ramp.astype(order + "u2").tobytes(), 16, 16, {}, order=order)
            np.testing.assert_array_equal(decode_image(data), as_rgb(np.rint(ramp / 257.0).astype(np.uint8)))

    @pytest.mark.parametrize(("colour_type", "channels"), [(2, 3), (6, 4), (4, 2)])
    def test_sixteen_bit_colour_keeps_its_high_bytes(self, colour_type: int, channels: int) -> None:
        samples = np.zeros((4, 5, channels), np.uint16)
        samples[...] = 65535  # opaque, where there is alpha
        samples[..., 0] = np.arange(20).reshape(4, 5) * 3000
        decoded = decode_image(png(samples, 16, colour_type))
        np.testing.assert_allclose(decoded[..., 0], samples[..., 0] / 257.0, atol=1)

    def test_twelve_bit_tiff_uses_its_full_range(self) -> None:
        values = np.array([0, 1024, 2048, 4095])
        packed = bytes([0, 0x04, 0x00, 0x80, 0x0F, 0xFF])  # 000 400 800 FFF
        decoded = decode_image(tiff(packed, 4, 1, {258: 12}))
        np.testing.assert_allclose(decoded[0, :, 0], values / 4095 * 255, atol=1)

    def test_white_is_zero_is_inverted(self) -> None:
        values = np.array([[0, 65535, 32768, 1000]], np.uint16)
        decoded = decode_image(tiff(values.astype("<u2").tobytes(), 4, 1, {262: 0}))
        np.testing.assert_allclose(decoded[0, :, 0], 255 - values[0] / 257.0, atol=1)

    @pytest.mark.parametrize("top", [1.0, 255.0, 65535.0, 3e6])
    def test_floats_are_scaled_by_the_range_they_use(self, top: float) -> None:
        ramp = np.linspace(0, top, 256, dtype=np.float32).reshape(16, 16)
        np.testing.assert_allclose(decode_image(encode(ramp, "TIFF"))[..., 0].ravel(), np.arange(256), atol=1)

    def test_negative_floats_are_stretched(self) -> None:
        ramp = np.linspace(-3, 3, 256, dtype=np.float32).reshape(16, 16)
        np.testing.assert_allclose(decode_image(encode(ramp, "TIFF"))[..., 0].ravel(), np.arange(256), atol=1)

    def test_not_a_number_is_black_and_infinity_white(self) -> None:
        samples = np.full((2, 2), 0.5, np.float32)
        samples[0] = [np.nan, np.inf]
        samples[1, 0] = 0.0
        samples[1, 1] = 1.0
        decoded = decode_image(encode(samples, "TIFF"))[..., 0]
        np.testing.assert_array_equal(decoded, [[0, 255], [0, 255]])

    def test_a_signalling_nan_is_no_warning(self) -> None:
        bits = np.array([[0x7FA00000, 0, 0x3F800000, 0x3F000000]], dtype="<u4")  # a NaN, 0, 1 and a half
        decoded = decode_image(tiff(bits.tobytes(), 4, 1, {258: 32, 339: 3}))
        np.testing.assert_array_equal(decoded[0, :, 0], [0, 0, 255, 128])

    def test_floats_without_a_finite_value_are_black(self) -> None:
        assert decode_image(encode(np.full((3, 3), np.nan, np.float32), "TIFF")).max() == 0

    @pytest.mark.parametrize("top", [255, 65535, 2**31 - 1])
    def test_long_integers_are_scaled_by_the_range_they_use(self, top: int) -> None:
        ramp = np.linspace(0, top, 256).astype(np.int32).reshape(16, 16)
        np.testing.assert_allclose(decode_image(encode(ramp, "TIFF"))[..., 0].ravel(), np.arange(256), atol=1)


class TestColourProfile:
    def test_another_space_is_taken_to_srgb(self) -> None:
        data = encode(scene()[..., ::-1].copy(), "PNG", icc_profile=swapped_profile())
        assert difference(decode_image(data), scene()) < 3
        assert difference(scene()[..., ::-1], scene()) > 30

    def test_srgb_itself_changes_nothing(self) -> None:
        from PIL import ImageCms

        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        np.testing.assert_array_equal(decode_image(encode(scene(), "PNG", icc_profile=profile)), scene())

    @pytest.mark.parametrize("profile", [b"garbage", b"\0" * 200, swapped_profile()[:150]])
    @pytest.mark.parametrize("kind", ["PNG", "TIFF"])
    def test_an_unreadable_profile_counts_as_none(self, kind: str, profile: bytes) -> None:
        np.testing.assert_array_equal(decode_image(encode(scene(), kind, icc_profile=profile)), scene())

    def test_a_profile_of_another_colour_model_counts_as_none(self) -> None:
        np.testing.assert_array_equal(
            decode_image(encode(grey(), "PNG", icc_profile=swapped_profile())), as_rgb(grey())
        )

    def test_a_profile_packed_in_an_unknown_way_counts_as_none(self) -> None:
        bad = chunk(b"iCCP", b"name\0\x07whatever")
        np.testing.assert_array_equal(decode_image(png(scene(), 8, 2, before=[bad])), scene())

    def test_threads_may_share_a_profile(self) -> None:
        data = encode(scene()[..., ::-1].copy(), "PNG", icc_profile=swapped_profile())
        alone = decode_image(data)
        with ThreadPoolExecutor(4) as pool:
            for decoded in pool.map(decode_image, [data] * 60):
                np.testing.assert_array_equal(decoded, alone)

    def test_a_profile_applies_to_the_colours_under_transparency(self) -> None:
        rgba = np.dstack([scene()[..., ::-1], np.full((48, 64), 255, np.uint8)])
        rgba[:8, :, 3] = 0
        wanted = scene()
        wanted[:8] = 255
        data = encode(rgba, "PNG", icc_profile=swapped_profile())
        assert difference(decode_image(data), wanted) < 3
