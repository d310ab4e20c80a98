"""Kinds of JPEG, and what surrounds the picture in one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import codec_sample, difference, encode, scene, swapped_profile
from tests.support.jpeg_files import (
    APP1,
    APP2,
    COMMENT,
    cmyk_jpeg,
    segment,
    with_frame,
    with_segments,
    ycck_jpeg,
)
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage
from twinlens.encoders.jpeg_segments import checked_jpeg

JPEG = encode(scene(), "JPEG", quality=95, subsampling=0)
PLAIN = decode_image(JPEG)


def reason(data: bytes) -> str:
    with pytest.raises(InvalidImage) as caught:
        decode_image(data)
    return str(caught.value)


class TestInks:
    """Stored inverted with Adobe's mark (transform 0: CMYK, 2: YCCK); without it too, as browsers take it."""

    @pytest.mark.parametrize(
        "data",
        [cmyk_jpeg(scene()), cmyk_jpeg(scene(), adobe=False), ycck_jpeg(scene())],
        ids=["CMYK", "CMYK without a mark", "YCCK"],
    )
    def test_inks_are_the_right_way_round(self, data: bytes) -> None:
        assert difference(decode_image(data), scene()) < 4
        assert difference(255 - scene(), scene()) > 40

    def test_black_ink_darkens(self) -> None:
        inks = np.zeros((40, 40, 4), np.uint8)
        inks[:, 20:, 3] = 200
        decoded = decode_image(encode(Image.fromarray(inks, "CMYK"), "JPEG", quality=95))
        assert decoded[:, :15].min() > 245
        np.testing.assert_allclose(decoded[:, 25:].mean(), 55, atol=5)

    def test_a_profile_of_another_model_counts_as_none(self) -> None:
        data = encode(Image.fromarray(scene()).convert("CMYK"), "JPEG", quality=95, icc_profile=swapped_profile())
        assert difference(decode_image(data), scene()) < 6

    def test_colours_stored_as_rgb_are_not_taken_for_ycbcr(self) -> None:
        assert difference(decode_image(encode(scene(), "JPEG", quality=95, keep_rgb=True)), scene()) < 4


@pytest.mark.parametrize("sampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_every_way_of_coding_gives_the_picture(sampling: int, progressive: bool, restarts: int) -> None:
    smooth = scene()
    smooth[:16, :16] = smooth[20, 20]  # no hard edge for the colour sampling to smear
    data = encode(
        smooth,
        "JPEG",
        quality=95,
        subsampling=sampling,
        progressive=progressive,
        restart_marker_blocks=restarts,
    )
    assert difference(decode_image(data), smooth) < 4


class TestAroundThePicture:
    @pytest.mark.parametrize(
        "parts",
        [
            [segment(COMMENT, b"a comment\0\xff")],
            [segment(0xED, b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0\xff\xff\xff\xff")],
            [segment(APP2, b"MPF\0II*\0" + b"\xff" * 60)],
            [segment(APP2, b"FPXR\0" + bytes(30))],
            [segment(0xE0, b"JFXX\0\x10" + bytes(40))],
            [segment(marker, bytes(60000)) for marker in range(0xE3, 0xEE)],
            [segment(APP1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(60000))] * 20,
            [segment(APP2, b"ICC_PROFILE\0\x01\x09" + bytes(60))],
            [segment(APP2, b"ICC_PROFILE\0")],
            [b"\xff" * 4000],
            [segment(COMMENT), b"\0junk between the parts"],
            [b"\xff\0\xff\0"],
        ],
        ids=[
            "comment",
            "Photoshop",
            "broken list of pictures",
            "FlashPix",
            "thumbnail",
            "vendors",
            "extended XMP",
            "profile with parts missing",
            "profile without a number",
            "fill bytes",
            "junk",
            "stuffed bytes",
        ],
    )
    def test_other_parts_change_nothing(self, parts: list[bytes]) -> None:
        np.testing.assert_array_equal(decode_image(with_segments(JPEG, *parts)), PLAIN)

    @pytest.mark.parametrize("tail", [b"\0", b"junk" * 99, JPEG, b"\xff\xd8\xff", b"\xff\xd9" * 9, bytes(100_000)])
    def test_bytes_after_the_end_change_nothing(self, tail: bytes) -> None:
        np.testing.assert_array_equal(decode_image(JPEG + tail), PLAIN)

    def test_stray_bytes_between_scans_change_nothing(self) -> None:
        data = encode(scene(), "JPEG", quality=95, progressive=True)
        last = data.rindex(b"\xff\xda")
        table = data.rindex(b"\xff\xc4", 0, last)
        np.testing.assert_array_equal(decode_image(data[:table] + b"stray" * 40 + data[table:]), decode_image(data))

    def test_a_film_behind_the_picture_changes_nothing(self) -> None:
        """Phones append seconds of film, which may hold whatever would make a picture suspect."""
        film = b"\0\0\0\x18ftypmp42" + b"\xff\xda\xff\xd9" * 500 + b"\xff" * 5000
        large = encode(np.zeros((2000, 3000, 3), np.uint8), "JPEG")
        assert checked_jpeg(large + film) == (large, True)
        np.testing.assert_array_equal(decode_image(JPEG + film), PLAIN)

    @pytest.mark.parametrize("kept", [0.3, 0.9])
    def test_a_film_does_not_stand_in_for_what_was_cut_off(self, kept: float) -> None:
        film = b"\0\0\0\x18ftypmp42" + bytes(1_000_000)
        assert "cut off" in reason(JPEG[: int(len(JPEG) * kept)] + film)

    def test_a_file_with_nothing_to_drop_is_not_copied(self) -> None:
        assert checked_jpeg(JPEG)[0] is JPEG

    def test_a_profile_in_many_parts_is_put_together_by_their_numbers(self) -> None:
        profile = swapped_profile()
        halves = [profile[:200], profile[200:]]
        parts = [segment(APP2, b"ICC_PROFILE\0" + bytes([i + 1, 2]) + half) for i, half in enumerate(halves)]
        swapped = encode(scene()[..., ::-1].copy(), "JPEG", quality=95, subsampling=0)
        assert difference(decode_image(with_segments(swapped, *parts[::-1])), scene()) < 5


class TestNotRead:
    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (with_frame(JPEG, bits=12), "12 bits a sample"),
            (with_frame(JPEG, marker=0xC3), "lossless"),
            (with_frame(JPEG, marker=0xC5), "hierarchical"),
            (with_frame(JPEG, size=(64, 0)), "height is not in its header"),
            (b"\xff\xd8" + JPEG, "damaged"),
            (b"\xff\xd8\xff\xd9", "no picture data"),
            (b"\xff\xd8\xff\xe0\0\0", "damaged"),
            (JPEG[:2] + JPEG[JPEG.index(b"\xff\xda") :], "damaged"),
        ],
        ids=["12 bits", "lossless", "hierarchical", "no height", "two starts", "nothing", "no length", "no frame"],
    )
    def test_what_it_is_is_said(self, data: bytes, said: str) -> None:
        assert said in reason(data)

    def test_zero_width_has_no_pixels(self) -> None:
        reason(with_frame(JPEG, size=(0, 48)))

    @pytest.mark.parametrize("progressive", [False, True])
    @pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9, 0.99])
    def test_a_cut_scan_is_refused(self, progressive: bool, fraction: float) -> None:
        data = encode(scene(480, 640), "JPEG", quality=90, progressive=progressive)
        assert "cut off" in reason(data[: int(len(data) * fraction)])

    def test_an_end_in_a_thumbnail_is_not_the_end_of_the_picture(self) -> None:
        thumbnail = segment(APP1, b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + encode(scene(16, 16), "JPEG"))
        data = with_segments(JPEG, thumbnail)
        np.testing.assert_array_equal(decode_image(data), PLAIN)
        assert "cut off" in reason(data[:-200])

    @pytest.mark.parametrize("progressive", [False, True])
    def test_a_size_that_the_data_cannot_fill_is_refused(self, progressive: bool) -> None:
        data = encode(scene(), "JPEG", progressive=progressive)
        assert "cut off" in reason(with_frame(data, size=(9990, 9990)))

    @pytest.mark.parametrize("progressive", [False, True])
    @pytest.mark.parametrize("grey", [False, True])
    def test_the_emptiest_picture_of_any_size_is_whole(self, progressive: bool, grey: bool) -> None:
        blank = Image.new("L" if grey else "RGB", (1600, 1200), 255 if grey else (255, 255, 255))
        data = encode(blank, "JPEG", quality=1, optimize=True, progressive=progressive)
        assert decode_image(data).min() == 255


@pytest.mark.parametrize("name", ["jpeg_arithmetic", "jpeg_arithmetic_progressive"])
def test_arithmetic_coding_is_read(name: str) -> None:
    assert difference(decode_image(codec_sample(name)), scene(24, 32)) < 2


def test_arithmetic_coding_may_take_less_than_a_bit_a_block() -> None:
    """A decoder gives some picture for this; what matters is that so short a file is not taken for a cut one."""
    data = with_frame(codec_sample("jpeg_arithmetic"), size=(2000, 1000))
    assert decode_image(data).shape == (1000, 2000, 3)


def test_a_second_picture_in_the_file_is_not_looked_at() -> None:
    first, second = Image.fromarray(scene()), Image.fromarray(scene(seed=1)[::-1].copy())
    both = encode(first, "MPO", save_all=True, append_images=[second], quality=95, subsampling=0)
    broken = both[: len(both) - 300]
    np.testing.assert_array_equal(decode_image(broken), PLAIN)


def test_the_frame_size_is_read_big_endian() -> None:
    assert struct.unpack(">HH", JPEG[JPEG.index(b"\xff\xc0") + 5 :][:4]) == (48, 64)
