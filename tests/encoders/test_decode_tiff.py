"""Kinds of TIFF: byte orders, sample types, strips, tiles, planes, colour models; what is not read is named."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import difference, encode, scene
from tests.support.tiff_files import (
    BITS,
    COLOUR_MAP,
    EXTRA_SAMPLES,
    FILL_ORDER,
    MAX_SAMPLE,
    ORDERS,
    PHOTOMETRIC,
    ROWS,
    SAMPLES,
    Order,
    tiff,
    tiff_of_parts,
    tiff_of_pixels,
)
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage

RGB = scene()
GREY = scene()[..., 1].copy()
AS_RGB = np.repeat(GREY[..., None], 3, axis=2)
ALPHA = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
OVER_WHITE = RGB * (ALPHA[..., None] / 255.0) + 255.0 - ALPHA[..., None]
LAYOUTS = {"one strip": {}, "strips": {"rows": 7}, "tiles": {"tile": (16, 16)}, "wide tiles": {"tile": (48, 32)}}


def reason(data: bytes) -> str:
    with pytest.raises(InvalidImage) as caught:
        decode_image(data)
    return str(caught.value)


@pytest.mark.parametrize("order", ORDERS)
class TestLayouts:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("planar", [False, True], ids=["chunky", "planes"])
    def test_eight_bit_colours_in_any_layout(self, order: Order, layout: str, planar: bool) -> None:
        data = tiff_of_pixels(RGB, {}, order=order, planar=planar, **LAYOUTS[layout])  # type: ignore[arg-type]
        np.testing.assert_array_equal(decode_image(data), RGB)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("kind", [np.uint16, np.float32])
    def test_deep_grey_in_any_layout(self, order: Order, layout: str, kind: type[np.generic]) -> None:
        samples = GREY.astype(np.uint16) * 257 if kind is np.uint16 else (GREY / 255).astype(np.float32)
        data = tiff_of_pixels(samples, {}, order=order, **LAYOUTS[layout])  # type: ignore[arg-type]
        np.testing.assert_array_equal(decode_image(data), AS_RGB)

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_sixteen_bit_colours_keep_their_high_bytes(self, order: Order, layout: str) -> None:
        samples = RGB.astype(np.uint16) * 256 + 99
        data = tiff_of_pixels(samples, {}, order=order, **LAYOUTS[layout])  # type: ignore[arg-type]
        np.testing.assert_array_equal(decode_image(data), RGB)


@pytest.mark.parametrize("order", ORDERS)
class TestFurtherSamples:
    """Tag 338: 0 nothing said, 1 opacity the colours are multiplied with, 2 opacity beside them (TIFF 6.0, 18)."""

    @pytest.mark.parametrize("scale", [1, 257], ids=["8 bits", "16 bits"])
    def test_opacity_beside_the_colours(self, order: Order, scale: int) -> None:
        samples = np.dstack([RGB, ALPHA]).astype(np.uint8 if scale == 1 else np.uint16) * scale
        data = tiff_of_pixels(samples.astype(np.uint8 if scale == 1 else np.uint16), {EXTRA_SAMPLES: 2}, order=order)
        np.testing.assert_allclose(decode_image(data), OVER_WHITE, atol=1)

    @pytest.mark.parametrize("scale", [1, 257], ids=["8 bits", "16 bits"])
    def test_colours_multiplied_with_their_opacity(self, order: Order, scale: int) -> None:
        multiplied = np.rint(RGB * (ALPHA[..., None] / 255.0))
        samples = (np.dstack([multiplied, ALPHA]) * scale).astype(np.uint8 if scale == 1 else np.uint16)
        decoded = decode_image(tiff_of_pixels(samples, {EXTRA_SAMPLES: 1}, order=order))
        np.testing.assert_allclose(decoded, OVER_WHITE, atol=3)

    def test_a_sample_of_unknown_meaning_is_left_out(self, order: Order) -> None:
        data = tiff_of_pixels(np.dstack([RGB, ALPHA]), {EXTRA_SAMPLES: 0}, order=order)
        np.testing.assert_array_equal(decode_image(data), RGB)

    def test_grey_with_opacity(self, order: Order) -> None:
        data = tiff_of_pixels(np.dstack([GREY, ALPHA]), {EXTRA_SAMPLES: 2}, order=order)
        wanted = AS_RGB * (ALPHA[..., None] / 255.0) + 255.0 - ALPHA[..., None]
        np.testing.assert_allclose(decode_image(data), wanted, atol=1)

    def test_planes_with_opacity(self, order: Order) -> None:
        data = tiff_of_pixels(np.dstack([RGB, ALPHA]), {EXTRA_SAMPLES: 2}, order=order, planar=True)
        np.testing.assert_allclose(decode_image(data), OVER_WHITE, atol=1)


@pytest.mark.parametrize("order", ORDERS)
class TestColourModels:
    @pytest.mark.parametrize("planar", [False, True], ids=["chunky", "planes"])
    def test_inks(self, order: Order, planar: bool) -> None:
        inks = np.dstack([255 - RGB, np.zeros_like(GREY)])
        np.testing.assert_array_equal(
            decode_image(tiff_of_pixels(inks, {PHOTOMETRIC: 5}, order=order, planar=planar)), RGB
        )

    def test_deep_inks(self, order: Order) -> None:
        inks = np.dstack([255 - RGB, np.zeros_like(GREY)]).astype(np.uint16) * 257
        np.testing.assert_array_equal(decode_image(tiff_of_pixels(inks, {PHOTOMETRIC: 5}, order=order)), RGB)

    def test_a_colour_map(self, order: Order) -> None:
        levels = np.arange(256)
        table = np.concatenate([levels, 255 - levels, levels // 2]) * 257
        data = tiff_of_pixels(GREY, {PHOTOMETRIC: 3, COLOUR_MAP: table.tolist()}, order=order)
        np.testing.assert_array_equal(decode_image(data), np.dstack([GREY, 255 - GREY, GREY // 2]))

    @pytest.mark.parametrize("bits", [1, 2, 4])
    @pytest.mark.parametrize("white_is_zero", [False, True])
    @pytest.mark.parametrize("fill", [1, 2])
    def test_shallow_grey(self, order: Order, bits: int, white_is_zero: bool, fill: int) -> None:
        top = (1 << bits) - 1
        values = np.arange(64) % (top + 1)
        stream = np.packbits(((values[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)).tobytes()
        if fill == 2:  # each byte begins with its lowest bit
            stream = bytes(int(f"{byte:08b}"[::-1], 2) for byte in stream)
        data = tiff(stream, 64, 1, {BITS: bits, PHOTOMETRIC: 0 if white_is_zero else 1, FILL_ORDER: fill}, order=order)
        levels = values * 255 // top
        np.testing.assert_array_equal(decode_image(data)[0, :, 0], 255 - levels if white_is_zero else levels)


class TestLab:
    def test_neutral_and_coloured(self) -> None:
        """L* as 0–255 for 0–100, a* and b* as signed bytes (TIFF 6.0, section 23): grey, reddish, bluish."""
        samples = np.array([[[128, 0, 0], [128, 80, 0], [128, 0, 176]]], np.uint8)
        grey, red, blue = decode_image(tiff_of_pixels(samples, {PHOTOMETRIC: 8}))[0].astype(int)
        assert np.ptp(grey) <= 3
        assert red[0] > red[1] + 60
        assert blue[2] > blue[0] + 60


class TestSampleTypes:
    def test_twelve_bits_in_sixteen_are_scaled_by_twelve(self) -> None:
        samples = GREY.astype(np.uint16) * 16
        for order in ORDERS:
            np.testing.assert_allclose(decode_image(tiff_of_pixels(samples, {}, order=order)), AS_RGB, atol=1)
        np.testing.assert_allclose(decode_image(encode(samples, "PNG")), AS_RGB, atol=1)

    def test_one_value_above_twelve_bits_makes_it_sixteen(self) -> None:
        samples = np.full((8, 8), 4000, np.uint16)
        assert decode_image(tiff_of_pixels(samples, {}))[0, 0, 0] == 249
        samples[3, 3] = 4096
        assert decode_image(tiff_of_pixels(samples, {}))[0, 0, 0] == 16

    @pytest.mark.parametrize("top", [1023, 4095, 16383, 65535])
    def test_a_greatest_value_that_the_file_names_is_believed(self, top: int) -> None:
        samples = (np.arange(64).reshape(8, 8) * (top // 64)).astype(np.uint16)
        decoded = decode_image(tiff_of_pixels(samples, {MAX_SAMPLE: top}))[..., 0]
        np.testing.assert_allclose(decoded, samples * (255.0 / top), atol=1)

    def test_a_greatest_value_that_is_exceeded_is_not_believed(self) -> None:
        samples = np.array([[0, 30000, 65535]], np.uint16)
        decoded = decode_image(tiff_of_pixels(samples, {MAX_SAMPLE: 1023}))[0, :, 0]
        np.testing.assert_allclose(decoded, [0, 117, 255], atol=1)

    @pytest.mark.parametrize("order", ORDERS)
    def test_signed_sixteen_bits_use_their_range(self, order: Order) -> None:
        half = (GREY.astype(np.int32) * 128).astype(np.int16)
        np.testing.assert_allclose(decode_image(tiff_of_pixels(half, {}, order=order)), AS_RGB, atol=2)
        whole = (GREY.astype(np.int32) * 257 - 32768).astype(np.int16)
        np.testing.assert_allclose(decode_image(tiff_of_pixels(whole, {}, order=order)), AS_RGB, atol=1)

    def test_unsigned_integers_beyond_two_billion_are_no_negative_ones(self) -> None:
        samples = GREY.astype(np.uint32) * 0x01010101
        np.testing.assert_allclose(decode_image(tiff_of_pixels(samples, {})), AS_RGB, atol=1)

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("top", [1.0, 255.0, 65535.0])
    def test_floats_of_white_zero_are_inverted(self, order: Order, top: float) -> None:
        samples = (GREY / np.float32(255) * np.float32(top)).astype(np.float32)
        samples[0, 0] = top
        wanted = 255 - np.rint(samples / top * 255)
        decoded = decode_image(tiff_of_pixels(samples, {PHOTOMETRIC: 0}, order=order))[..., 0]
        np.testing.assert_allclose(decoded, wanted, atol=1)


@pytest.mark.parametrize("packed", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd", "lzma"])
@pytest.mark.parametrize("kind", ["RGB", "L", "CMYK", "I;16", "F"])
def test_every_packing_gives_the_picture(packed: str, kind: str) -> None:
    pictures = {
        "RGB": Image.fromarray(RGB),
        "L": Image.fromarray(GREY),
        "CMYK": Image.fromarray(RGB).convert("CMYK"),
        "I;16": Image.fromarray(GREY.astype(np.uint16) * 257),
        "F": Image.fromarray((GREY / 255).astype(np.float32)),
    }
    decoded = decode_image(encode(pictures[kind], "TIFF", compression=packed))
    np.testing.assert_array_equal(decoded, RGB if kind in {"RGB", "CMYK"} else AS_RGB)


@pytest.mark.parametrize("packed", ["group3", "group4", "tiff_ccitt"])
def test_fax_packings_give_the_picture(packed: str) -> None:
    bits = GREY > 127
    decoded = decode_image(encode(Image.fromarray(bits), "TIFF", compression=packed))
    np.testing.assert_array_equal(decoded[..., 0], bits * 255)


def test_jpeg_in_a_tiff() -> None:
    assert difference(decode_image(encode(RGB, "TIFF", compression="jpeg", quality=95)), RGB) < 5


@pytest.mark.parametrize("packed", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_ycbcr(packed: str) -> None:
    """Not packed at all, Pillow refuses it until version 13."""
    data = encode(Image.fromarray(RGB).convert("YCbCr"), "TIFF", compression=packed)
    assert difference(decode_image(data), RGB) < 3


@pytest.mark.parametrize("packed", ["raw", "tiff_lzw"])
def test_a_file_of_64_bit_offsets(packed: str) -> None:
    np.testing.assert_array_equal(decode_image(encode(RGB, "TIFF", big_tiff=True, compression=packed)), RGB)


class TestNotRead:
    """Better refused by name than shown wrong."""

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize(
        ("samples", "options", "said"),
        [
            (RGB.astype(np.uint16) * 257, {"planar": True}, "3 samples of 16 bits (whole numbers, in planes)"),
            ((RGB / 255).astype(np.float32), {}, "3 samples of 32 bits (floats)"),
            (RGB.astype(np.uint32), {}, "3 samples of 32 bits"),
            (GREY.astype(np.int8), {}, "1 sample of 8 bits (signed numbers)"),
            ((GREY / 255).astype(np.float16), {}, "1 sample of 16 bits (floats)"),
            ((GREY / 255).astype(np.float64), {}, "1 sample of 64 bits (floats)"),
            (np.dstack([GREY, ALPHA]).astype(np.uint16), {}, "2 samples of 16 bits"),
            (np.dstack([GREY, ALPHA]), {"planar": True}, "in planes"),
            (np.zeros((4, 4, 7), np.uint8), {}, "7 samples of 8 bits"),
        ],
        ids=[
            "deep planes",
            "float RGB",
            "long RGB",
            "signed bytes",
            "half",
            "double",
            "deep LA",
            "LA planes",
            "spectral",
        ],
    )
    def test_the_kind_is_named(self, order: Order, samples: np.ndarray, options: dict[str, bool], said: str) -> None:
        message = reason(tiff_of_pixels(samples, {}, order=order, planar=options.get("planar", False)))
        assert said in message
        assert "not read" in message
        assert "damaged" not in message

    @pytest.mark.parametrize("model", [9, 10, 32844, 32845])
    def test_other_colour_models(self, model: int) -> None:
        assert f"photometric {model}" in reason(tiff_of_pixels(RGB, {PHOTOMETRIC: model}))

    def test_no_directory_is_damage(self) -> None:
        assert "header" in reason(b"II*\0\x08\0\0\0")
        assert "header" in reason(b"II*\0\xff\xff\xff\x7f" + bytes(40))


class TestDamage:
    def test_strips_beyond_the_end(self) -> None:
        whole = tiff_of_pixels(RGB, {}, rows=8)
        strips = tiff_of_parts([RGB.tobytes()[:3000]], 64, 48, {BITS: [8, 8, 8], SAMPLES: 3, PHOTOMETRIC: 2, ROWS: 48})
        np.testing.assert_array_equal(decode_image(whole), RGB)
        reason(strips)

    @pytest.mark.parametrize("packed", ["tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd"])
    def test_a_size_that_the_data_cannot_fill(self, packed: str) -> None:
        data = bytearray(encode(RGB, "TIFF", compression=packed))
        place = int.from_bytes(data[4:8], "little")
        for i in range(int.from_bytes(data[place : place + 2], "little")):
            entry = place + 2 + 12 * i
            if int.from_bytes(data[entry : entry + 2], "little") in {256, 257, ROWS}:
                data[entry + 2 : entry + 12] = b"\4\0\1\0\0\0" + (9990).to_bytes(4, "little")
        assert "cut off" in reason(bytes(data))
