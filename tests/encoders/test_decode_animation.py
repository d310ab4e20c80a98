"""The first frame of what moves or has pages, and nothing else of it."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.support.gif_files import gif
from tests.support.image_files import PNG_SIGNATURE, chunk, difference, encode, png, scene
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage


def frames() -> list[Image.Image]:
    return [Image.fromarray(scene(seed=0)), Image.fromarray(scene(seed=1)[::-1].copy())]


@pytest.mark.parametrize(
    ("kind", "options"), [("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {})], ids=["WebP", "APNG", "TIFF"]
)
@pytest.mark.parametrize("more", [1, 5])
def test_the_first_frame_is_taken(kind: str, options: dict[str, object], more: int) -> None:
    first, second = frames()
    data = encode(first, kind, save_all=True, append_images=[second] * more, **options)
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


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_a_broken_later_frame_costs_nothing(kind: str) -> None:
    first, second = frames()
    options = {"lossless": True} if kind == "WEBP" else {}
    data = bytearray(encode(first, kind, save_all=True, append_images=[second], **options))
    if kind == "PNG":  # a wrong checksum of a frame that is not wanted
        data[data.index(b"fdAT") + 60] ^= 0xFF
    elif kind == "GIF":
        del data[-300:]
    else:
        data[-40:] = bytes(40)
    whole = decode_image(encode(first, kind, save_all=True, append_images=[second], **options))
    np.testing.assert_array_equal(decode_image(bytes(data)), whole)


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


@pytest.mark.parametrize("count", [0, 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_count_of_frames_is_not_believed(count: int) -> None:
    control = chunk(b"acTL", struct.pack(">II", count, 0))
    np.testing.assert_array_equal(decode_image(png(scene(), 8, 2, before=[control])), scene())


class TestGifCanvas:
    """What the first frame leaves free is transparent, whatever the background colour says: browsers agree on that."""

    palette = np.stack([np.arange(256), 255 - np.arange(256), np.arange(256) // 2], axis=1).astype(np.uint8)
    indices = scene()[..., 1].copy()

    @pytest.mark.parametrize("transparent", [None, 0, 250])
    @pytest.mark.parametrize("background", [0, 200])
    @pytest.mark.parametrize("local", [False, True])
    @pytest.mark.parametrize("disposal", [0, 1, 2, 3])
    def test_around_a_small_frame_it_is_white(
        self, transparent: int | None, background: int, local: bool, disposal: int
    ) -> None:
        part = self.indices[:20, :30].copy()
        part[part == transparent] = 1
        data = gif(
            [(part, (5, 10)), (self.indices, (0, 0))],
            (64, 48),
            self.palette.tobytes(),
            local=local,
            transparent=transparent,
            background=background,
            disposal=disposal,
        )
        wanted = np.full((48, 64, 3), 255, np.uint8)
        wanted[10:30, 5:35] = self.palette[part]
        np.testing.assert_array_equal(decode_image(data), wanted)

    def test_a_frame_larger_than_its_canvas_is_whole(self) -> None:
        data = gif([(self.indices, (0, 0))], (20, 20), self.palette.tobytes())
        np.testing.assert_array_equal(decode_image(data), self.palette[self.indices])

    def test_a_frame_beyond_its_canvas_makes_it_grow(self) -> None:
        decoded = decode_image(gif([(self.indices, (40, 30))], (64, 48), self.palette.tobytes()))
        assert decoded.shape == (78, 104, 3)
        np.testing.assert_array_equal(decoded[30:, 40:], self.palette[self.indices])
        assert decoded[:30].min() == 255

    def test_without_any_palette_it_is_still_a_picture(self) -> None:
        assert decode_image(gif([(self.indices, (0, 0))], (64, 48), b"")).shape == (48, 64, 3)

    @pytest.mark.parametrize(
        "extra", [b"", b"\x21\xfe\x05hello\0", b"\x21\xff\x0bXMP DataXMP\x03abc\0", b"\0\0\0", b"\x21\xfe\0"]
    )
    def test_comments_before_the_frame_change_nothing(self, extra: bytes) -> None:
        data = gif([(self.indices, (0, 0))], (64, 48), self.palette.tobytes(), transparent=250)
        whole = decode_image(data)
        np.testing.assert_array_equal(decode_image(data[:781] + extra + data[781:]), whole)

    @pytest.mark.parametrize("frames", [[], [(np.zeros((0, 5), np.uint8), (0, 0))]])
    def test_no_frame_is_no_picture(self, frames: list[tuple[np.ndarray, tuple[int, int]]]) -> None:
        with pytest.raises(InvalidImage, match=r"no picture|no pixels"):
            decode_image(gif(frames, (64, 48), self.palette.tobytes()))


def webp_animation(frame: np.ndarray, offset: tuple[int, int], canvas: tuple[int, int], background: bytes) -> bytes:
    """One frame somewhere on a canvas (RFC 9649, section 2.7.1.1): offsets are stored by twos."""
    still = encode(frame, "WEBP", lossless=True, exact=True)
    parts = still[12:] if still[12:16] == b"VP8L" else still[still.index(b"VP8L") :]
    height, width = frame.shape[:2]

    def three(value: int) -> bytes:
        return value.to_bytes(3, "little")

    body = b"".join(map(three, (offset[0] // 2, offset[1] // 2, width - 1, height - 1, 100))) + b"\2" + parts
    head = b"VP8X" + struct.pack("<I", 10) + b"\x12\0\0\0" + three(canvas[0] - 1) + three(canvas[1] - 1)
    control = b"ANIM" + struct.pack("<I", 6) + background + b"\0\0"
    whole = b"WEBP" + head + control + b"ANMF" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


@pytest.mark.parametrize("background", [b"\0\0\0\0", b"\xff\0\0\xff", b"\0\xff\0\x80"])
def test_around_a_small_webp_frame_it_is_white(background: bytes) -> None:
    opaque = np.dstack([scene(20, 30), np.full((20, 30), 255, np.uint8)])
    opaque[0, 0, 3] = 254  # so that it is stored with opacity
    decoded = decode_image(webp_animation(opaque, (6, 10), (64, 48), background))
    wanted = np.full((48, 64, 3), 255, np.uint8)
    wanted[10:30, 6:36] = opaque[..., :3]
    np.testing.assert_allclose(decoded, wanted, atol=1)


def test_thousands_of_frames_cost_nothing() -> None:
    first = Image.fromarray(scene()).quantize(32)
    one = encode(first, "GIF")
    start = one.index(b"\x2c", 13 + 96)
    many = one[:-1] + one[start:-1] * 5000 + b";"
    np.testing.assert_array_equal(decode_image(many), decode_image(one))
    control = struct.pack(">IIIIIHHBB", 0, 64, 48, 0, 0, 1, 10, 0, 0)
    frame = chunk(b"fcTL", control) + chunk(b"fdAT", struct.pack(">I", 1) + zlib.compress(bytes(193 * 48)))
    animated = png(scene(), 8, 2, before=[chunk(b"acTL", struct.pack(">II", 20_000, 0))], after=[frame] * 20_000)
    np.testing.assert_array_equal(decode_image(animated), scene())
