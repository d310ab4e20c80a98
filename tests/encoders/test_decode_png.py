"""Kinds of PNG, and what chunks may do to a picture."""

from __future__ import annotations

import itertools
import struct
import zlib

import numpy as np
import pytest

from tests.support.image_files import PNG_SIGNATURE, chunk, png, scene, swapped_profile
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage

RGB = scene()
GREY = RGB[..., 1].copy()
ALPHA = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
LEVELS = np.arange(256)
TABLE = np.stack([LEVELS, 255 - LEVELS, LEVELS // 2], axis=1).astype(np.uint8)
# PNG 3rd edition, section 8.1: first row, first column, row step, column step of the seven passes.
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def reason(data: bytes) -> str:
    with pytest.raises(InvalidImage) as caught:
        decode_image(data)
    return str(caught.value)


def header(width: int = 64, height: int = 48, depth: int = 8, colour: int = 2, interlace: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))


def whole(*parts: bytes) -> bytes:
    return b"".join([PNG_SIGNATURE, *parts, chunk(b"IEND", b"")])


def packed(samples: np.ndarray, depth: int) -> bytes:
    """Rows of samples at the stored depth, each with filter 0."""
    flat = samples.reshape(samples.shape[0], -1)
    if depth == 16:
        return b"".join(b"\0" + row.astype(">u2").tobytes() for row in flat)
    bits = (flat[..., None] >> np.arange(depth - 1, -1, -1)) & 1
    return b"".join(b"\0" + np.packbits(row.reshape(-1).astype(np.uint8)).tobytes() for row in bits)


KINDS = {(0, 1): 1, (0, 8): 1, (0, 16): 1, (2, 8): 3, (2, 16): 3, (4, 8): 2, (4, 16): 2, (6, 8): 4, (6, 16): 4}


@pytest.mark.parametrize(("colour", "depth"), KINDS)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (5, 3), (48, 64)])
def test_interlaced_is_the_same_picture(colour: int, depth: int, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(colour * 100 + depth)
    samples = rng.integers(0, 1 << depth, (*size, KINDS[colour, depth]))
    if size[0] > 1:
        samples[0, 0] = (1 << depth) - 1  # so that 16 bits are not taken for 12
    stream = b"".join(
        packed(part, depth) for top, left, down, right in PASSES if (part := samples[top::down, left::right]).size
    )
    interlaced = whole(header(size[1], size[0], depth, colour, interlace=1), chunk(b"IDAT", zlib.compress(stream)))
    np.testing.assert_array_equal(decode_image(interlaced), decode_image(png(samples, depth, colour)))


def test_every_filter_is_undone() -> None:
    """PNG 3rd edition, section 9: none, sub, up, average, Paeth, in turn."""
    rows, before = [], np.zeros((64, 3), int)
    for number, row in enumerate(RGB.astype(int)):
        left = np.vstack([np.zeros((1, 3), int), row[:-1]])
        corner = np.vstack([np.zeros((1, 3), int), before[:-1]])
        distances = [np.abs(left + before - corner - x) for x in (left, before, corner)]
        nearest_two = np.where(distances[1] <= distances[2], before, corner)
        paeth = np.where((distances[0] <= distances[1]) & (distances[0] <= distances[2]), left, nearest_two)
        guess = (0 * row, left, before, (left + before) // 2, paeth)[number % 5]
        rows.append(bytes([number % 5]) + ((row - guess) % 256).astype(np.uint8).tobytes())
        before = row
    data = whole(header(), chunk(b"IDAT", zlib.compress(b"".join(rows))))
    np.testing.assert_array_equal(decode_image(data), RGB)


class TestPalette:
    @pytest.mark.parametrize("depth", [1, 2, 4, 8])
    def test_any_depth_with_opacities(self, depth: int) -> None:
        colours = 1 << depth
        indices = (GREY.astype(int) * colours // 256)[..., None]
        opacities = (np.arange(colours) * 37 % 256).astype(np.uint8)
        data = png(
            indices,
            depth,
            3,
            before=[chunk(b"PLTE", TABLE[:colours].tobytes()), chunk(b"tRNS", opacities.tobytes())],
        )
        shown = indices[..., 0]
        weight = opacities[shown][..., None] / 255.0
        np.testing.assert_allclose(decode_image(data), TABLE[shown] * weight + 255 * (1 - weight), atol=1)

    @pytest.mark.parametrize("count", [1, 4, 7])
    def test_fewer_opacities_than_colours(self, count: int) -> None:
        indices = np.minimum(GREY // 32, 7)[..., None]
        data = png(indices, 8, 3, before=[chunk(b"PLTE", TABLE[:8].tobytes()), chunk(b"tRNS", bytes(count))])
        wanted = np.where(indices < count, 255, TABLE[indices[..., 0]])
        np.testing.assert_array_equal(decode_image(data), wanted)

    @pytest.mark.parametrize("count", [9, 256, 300, 5000])
    def test_more_opacities_than_colours_are_ignored_as_by_libpng(self, count: int) -> None:
        indices = np.minimum(GREY // 32, 7)[..., None]
        data = png(indices, 8, 3, before=[chunk(b"PLTE", TABLE[:8].tobytes()), chunk(b"tRNS", bytes(count))])
        np.testing.assert_array_equal(decode_image(data), TABLE[indices[..., 0]])

    def test_an_index_beyond_the_palette_is_no_crash(self) -> None:
        assert decode_image(png(GREY[..., None], 8, 3, before=[chunk(b"PLTE", bytes(24))])).shape == RGB.shape

    @pytest.mark.parametrize("palette", [[], [chunk(b"PLTE", b"")], [chunk(b"tRNS", bytes(4))]])
    def test_no_palette_is_damage(self, palette: list[bytes]) -> None:
        assert "no palette" in reason(png(GREY[..., None], 8, 3, before=palette))

    def test_a_palette_beside_true_colours_is_a_suggestion(self) -> None:
        np.testing.assert_array_equal(decode_image(png(RGB, 8, 2, before=[chunk(b"PLTE", TABLE.tobytes())])), RGB)


class TestChunks:
    data = png(RGB, 8, 2)
    start = data.index(b"IDAT") - 4
    body = data[start + 8 : -16]

    @pytest.mark.parametrize("length", [1, 7, 1000])
    def test_pixels_in_many_chunks(self, length: int) -> None:
        parts = [chunk(b"IDAT", self.body[i : i + length]) for i in range(0, len(self.body), length)]
        np.testing.assert_array_equal(decode_image(whole(header(), *parts)), RGB)

    @pytest.mark.parametrize(
        "between",
        [chunk(b"tEXt", b"a\0b"), chunk(b"IDAT", b""), chunk(b"prVt", b"x" * 99), chunk(b"tIME", bytes(7))],
        ids=["text", "empty pixels", "private", "time"],
    )
    def test_chunks_in_between_change_nothing(self, between: bytes) -> None:
        halves = [chunk(b"IDAT", self.body[:50]), between, chunk(b"IDAT", self.body[50:])]
        np.testing.assert_array_equal(decode_image(whole(header(), between, *halves, between)), RGB)

    @pytest.mark.parametrize(
        "extra",
        [
            chunk(b"gAMA", struct.pack(">I", 100_000)),
            chunk(b"cHRM", bytes(32)),
            chunk(b"sRGB", b"\x09"),
            chunk(b"bKGD", bytes(6)),
            chunk(b"pHYs", bytes(9)),
            chunk(b"sBIT", b"\5\6\5"),
            chunk(b"cICP", b"\x09\x10\0\1"),
            chunk(b"tRNS", bytes(5)),
            chunk(b"tRNS", b""),
            chunk(b"eXIf", b""),
            chunk(b"eXIf", b"\xff" * 40),
            chunk(b"iCCP", b""),
            chunk(b"iCCP", b"name\0\0" + zlib.compress(b"no profile")),
            chunk(b"iCCP", b"name\0\0" + zlib.compress(swapped_profile())[:-20]),
            chunk(b"hIST", bytes(3)),
            chunk(b"zTXt", b"no end"),
            chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0<not xml"),
            chunk(b"iTXt", b"\xff\xfe\0\1\0\0\0zzzz"),
        ],
    )
    def test_odd_ancillary_chunks_change_nothing(self, extra: bytes) -> None:
        np.testing.assert_array_equal(decode_image(png(RGB, 8, 2, before=[extra])), RGB)

    @pytest.mark.parametrize("after", [b"junk", chunk(b"IEND", b""), PNG_SIGNATURE, bytes(50_000)])
    def test_bytes_after_the_end_change_nothing(self, after: bytes) -> None:
        np.testing.assert_array_equal(decode_image(self.data + after), RGB)

    def test_pixel_data_behind_the_pixels_changes_nothing(self) -> None:
        longer = whole(header(), chunk(b"IDAT", self.body + b"junk" * 99))
        np.testing.assert_array_equal(decode_image(longer), RGB)

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (whole(header(), chunk(b"IDAT", body[:-4] + bytes(4))), "broken"),
            (whole(chunk(b"CgBI", b"\x50\0\x20\6"), header(), chunk(b"IDAT", body)), "Apple"),
            (whole(chunk(b"IDAT", body), header()), "begin with its header"),
            (whole(header(depth=3), chunk(b"IDAT", body)), "header"),
            (whole(header(colour=5), chunk(b"IDAT", body)), "header"),
            (whole(header(interlace=7), chunk(b"IDAT", body)), "damaged"),
            (whole(header(), chunk(b"I\0AT", body)), "impossible name"),
            (data[:-12], "cut off"),
            (data[:-4], "cut off"),
            (whole(header(), *[chunk(b"tEXt", b"")] * 100_001, chunk(b"IDAT", body)), "too many parts"),
        ],
        ids=[
            "wrong sum of the data",
            "Apple's own",
            "pixels first",
            "depth",
            "colour type",
            "interlacing",
            "name",
            "no end",
            "half an end",
            "very many",
        ],
    )
    def test_damage_is_named(self, data: bytes, said: str) -> None:
        assert said in reason(data)

    def test_any_single_byte_changed_in_the_pixels_is_noticed(self) -> None:
        for place in range(self.start + 8, len(self.data) - 16, 37):
            changed = bytearray(self.data)
            changed[place] ^= 0x10
            assert "checksum" in reason(bytes(changed))


def test_grey_of_16_bits_with_opacity_is_laid_over_white() -> None:
    samples = np.dstack([GREY, ALPHA]).astype(int) * 257
    weight = ALPHA[..., None] / 255.0
    wanted = np.repeat(GREY[..., None], 3, axis=2) * weight + 255 * (1 - weight)
    np.testing.assert_allclose(decode_image(png(samples, 16, 4)), wanted, atol=1)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations([b"tRNS", b"iCCP", b"eXIf", b"gAMA"], 2)))
def test_the_order_of_ancillary_chunks_does_not_matter(first: bytes, second: bytes) -> None:
    bodies = {
        b"tRNS": struct.pack(">HHH", 230, 40, 60),
        b"iCCP": b"name\0\0" + zlib.compress(swapped_profile()),
        b"eXIf": b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0) + bytes(4),
        b"gAMA": struct.pack(">I", 45_455),
    }
    parts = [chunk(kind, bodies[kind]) for kind in (first, second)]
    np.testing.assert_array_equal(
        decode_image(png(RGB, 8, 2, before=parts)), decode_image(png(RGB, 8, 2, before=parts[::-1]))
    )


@pytest.mark.parametrize(("colour_type", "opaque"), [(2, False), (4, True), (6, True)])
def test_dark_colours_and_grey_with_opacity_are_not_taken_for_12_bits_in_16(colour_type: int, opaque: bool) -> None:
    colour = np.array([3000, 2000, 1000] if colour_type != 4 else [3000], np.uint16)
    samples = np.tile(np.append(colour, 65535) if opaque else colour, (8, 8, 1))
    wanted = np.broadcast_to(colour / 257, (8, 8, 3))
    np.testing.assert_allclose(decode_image(png(samples, 16, colour_type)), wanted, atol=1)
