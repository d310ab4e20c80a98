"""Kinds of BMP: headers, depths, directions, masks, opacity, run lengths."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.bmp_files import bmp, rows_of
from tests.support.image_files import scene
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage

RGB = scene()
BGR = RGB[..., ::-1]
ALPHA = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
MASKS = (0xFF0000, 0xFF00, 0xFF)
WITH_ALPHA = (*MASKS, 0xFF000000)
INDICES = (RGB[..., 0] // 16).astype(np.uint8)
TABLE = np.stack([np.arange(16) * 16, 255 - np.arange(16) * 16, np.full(16, 7), np.zeros(16)], axis=1).astype(np.uint8)
INDEXED = TABLE[INDICES][..., 2::-1]


def runs(indices: np.ndarray, bits: int) -> bytes:
    """Run lengths of 1 to 255 equal pixels (8 bits) or pairs (4 bits), bottom row first."""
    stream = b""
    for row in indices[::-1].tolist():
        if bits == 4:
            stream += b"".join(bytes([2, row[i] << 4 | row[i + 1]]) for i in range(0, len(row), 2))
        else:
            start = 0
            for i in range(1, len(row) + 1):
                if i == len(row) or row[i] != row[start]:
                    stream += bytes([i - start, row[start]])
                    start = i
        stream += b"\0\0"
    return stream + b"\0\1"


def reason(data: bytes) -> str:
    with pytest.raises(InvalidImage) as caught:
        decode_image(data)
    return str(caught.value)


@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("width", [61, 62, 63, 64])
def test_rows_of_any_width_in_either_direction(top_down: bool, width: int) -> None:
    picture = RGB[:, :width]
    data = bmp(rows_of(np.ascontiguousarray(picture[..., ::-1])), width, 24, top_down=top_down)
    np.testing.assert_array_equal(decode_image(data), picture)


def test_the_header_of_os2() -> None:
    np.testing.assert_array_equal(decode_image(bmp(rows_of(BGR), 64, 24, header=12)), RGB)


class TestOpacity:
    @pytest.mark.parametrize("fourth", [np.zeros_like(ALPHA), ALPHA, np.full_like(ALPHA, 255)])
    @pytest.mark.parametrize("masks", [(), MASKS])
    def test_a_fourth_byte_that_no_mask_names_is_no_opacity(self, fourth: np.ndarray, masks: tuple[int, ...]) -> None:
        rows = rows_of(np.dstack([BGR, fourth]))
        data = bmp(rows, 64, 32, compression=3 if masks else 0, masks=masks)
        np.testing.assert_array_equal(decode_image(data), RGB)

    @pytest.mark.parametrize("header", [56, 108, 124])
    def test_opacity_by_mask_is_laid_over_white(self, header: int) -> None:
        data = bmp(rows_of(np.dstack([BGR, ALPHA])), 64, 32, header=header, compression=3, masks=WITH_ALPHA)
        wanted = RGB * (ALPHA[..., None] / 255.0) + 255.0 - ALPHA[..., None]
        np.testing.assert_allclose(decode_image(data), wanted, atol=1)

    @pytest.mark.parametrize("header", [56, 108, 124])
    def test_opacity_that_is_nought_everywhere_was_not_meant(self, header: int) -> None:
        empty = np.zeros_like(ALPHA)
        data = bmp(rows_of(np.dstack([BGR, empty])), 64, 32, header=header, compression=3, masks=WITH_ALPHA)
        np.testing.assert_array_equal(decode_image(data), RGB)

    def test_one_visible_pixel_makes_the_rest_transparent(self) -> None:
        empty = np.zeros_like(ALPHA)
        empty[5, 6] = 255
        data = bmp(rows_of(np.dstack([BGR, empty])), 64, 32, header=108, compression=3, masks=WITH_ALPHA)
        decoded = decode_image(data)
        np.testing.assert_array_equal(decoded[5, 6], RGB[5, 6])
        assert decoded[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize("masks", [(), (0x7C00, 0x3E0, 0x1F), (0xF800, 0x7E0, 0x1F)])
def test_sixteen_bits_by_mask(masks: tuple[int, ...]) -> None:
    green_bits = 6 if masks[:1] == (0xF800,) else 5
    red, green, blue = (RGB[..., i].astype(np.uint16) for i in range(3))
    packed = (red >> 3) << 5 + green_bits | (green >> 8 - green_bits) << 5 | blue >> 3
    data = bmp(rows_of(packed.astype("<u2")), 64, 16, compression=3 if masks else 0, masks=masks)
    np.testing.assert_allclose(decode_image(data).astype(int), RGB, atol=8)


class TestPalette:
    @pytest.mark.parametrize("bits", [4, 8])
    @pytest.mark.parametrize("top_down", [False, True])
    def test_indices(self, bits: int, top_down: bool) -> None:
        stored = INDICES if bits == 8 else INDICES[:, ::2] << 4 | INDICES[:, 1::2]
        data = bmp(rows_of(stored), 64, bits, palette=TABLE.tobytes(), top_down=top_down)
        np.testing.assert_array_equal(decode_image(data), INDEXED)

    @pytest.mark.parametrize(
        "table", [[(0, 0, 0), (255, 255, 255)], [(255, 255, 255), (0, 0, 0)], [(9, 99, 200), (1, 2, 3)]]
    )
    def test_one_bit_of_any_two_colours(self, table: list[tuple[int, int, int]]) -> None:
        bits = INDICES > 7
        palette = b"".join(bytes([b, g, r, 0]) for r, g, b in table)
        data = bmp(rows_of(np.packbits(bits, axis=1)), 64, 1, palette=palette)
        np.testing.assert_array_equal(decode_image(data), np.array(table, np.uint8)[bits.astype(int)])

    def test_an_index_beyond_the_palette_is_no_crash(self) -> None:
        assert decode_image(bmp(rows_of(INDICES), 64, 8, palette=TABLE[:2].tobytes())).shape == (48, 64, 3)


class TestRunLengths:
    @pytest.mark.parametrize("bits", [4, 8])
    def test_runs(self, bits: int) -> None:
        data = bmp(
            [runs(INDICES, bits)], 64, bits, compression=1 if bits == 8 else 2, palette=TABLE.tobytes(), height=48
        )
        np.testing.assert_array_equal(decode_image(data), INDEXED)

    @pytest.mark.parametrize(
        "stream", [b"", b"\0\1", b"\5\3", b"\0\2\5\5\3\2\0\1", b"\0\x7f\1\2", runs(INDICES, 8)[:99]]
    )
    def test_runs_that_do_not_fill_the_picture_are_refused(self, stream: bytes) -> None:
        assert "damaged" in reason(bmp([stream], 64, 8, compression=1, palette=TABLE.tobytes(), height=48))

    @pytest.mark.parametrize(("size", "length"), [((9000, 9000), 100), ((64, 48), 5_000_000)])
    def test_runs_that_would_take_too_long_are_refused(self, size: tuple[int, int], length: int) -> None:
        data = bmp([b"\1\3" * (length // 2)], size[0], 8, compression=1, palette=TABLE.tobytes(), height=size[1])
        assert "run lengths" in reason(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bmp(rows_of(INDICES), 64, 16, compression=3, masks=(0xF00, 0xF0, 0xF)), "bitfields"),
        (bmp(rows_of(INDICES), 64, 7), "depth"),
        (bmp([b"\xff\xd8\xff"], 64, 24, compression=4, height=48), "compression"),
    ],
    ids=["4444", "7 bits", "JPEG inside"],
)
def test_what_is_not_read_is_named(data: bytes, said: str) -> None:
    message = reason(data)
    assert said in message.lower()
    assert "not read" in message
