"""HEIC, with the plug-in and without it."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import difference, encode, scene, swapped_profile
from tests.support.orientations import UPRIGHT, exif
from twinlens.encoders.decode import DecodeLimits, decode_image
from twinlens.encoders.errors import InvalidImage

pillow_heif = pytest.importorskip("pillow_heif")
pillow_heif.register_heif_opener()

HEIC = encode(scene(), "HEIF", quality=95, chroma=444)


@pytest.mark.parametrize("brightest", [3000, 60000])
def test_deep_grey_keeps_its_brightness(brightest: int) -> None:
    """No twelve bits in sixteen here: the file says how many it has."""
    samples = np.tile(np.linspace(0, brightest, 64).astype(np.uint16), (48, 1))
    stream = io.BytesIO()
    pillow_heif.from_bytes("I;16", (64, 48), samples.tobytes()).save(stream, quality=100)
    assert difference(decode_image(stream.getvalue()), np.repeat(samples[..., None] / 257, 3, axis=2)) < 1


def test_a_photo_comes_close() -> None:
    assert difference(decode_image(HEIC), scene()) < 4


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_orientation_is_applied_exactly_once(orientation: int) -> None:
    """The writer stores it as `irot` and `imir` boxes and keeps the EXIF: a reader that took both would turn twice."""
    data = encode(scene(), "HEIF", quality=95, chroma=444, exif=exif(orientation))
    assert (b"irot" in data or b"imir" in data) == (orientation > 1)
    assert difference(decode_image(data), UPRIGHT[orientation](scene())) < 4


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_exif_alone_turns_nothing(orientation: int) -> None:
    """The boxes alone count: cameras write both, and browsers ignore the EXIF."""
    plain = encode(scene(), "HEIF", quality=95, chroma=444, exif=exif(1))
    marked = bytearray(plain)
    start = plain.index(b"\x01\x12\0\x03\0\0\0\x01") if b"MM\0*" in plain else plain.index(b"\x12\x01\x03\0\x01\0\0\0")
    marked[start + 8 : start + 10] = bytes([0, orientation]) if b"MM\0*" in plain else bytes([orientation, 0])
    np.testing.assert_array_equal(decode_image(bytes(marked)), decode_image(plain))


@pytest.mark.parametrize(
    "block", [b"", b"garbage", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\x08\0\0\0\2\0\x12\1"]
)
def test_broken_exif_never_costs_the_picture(block: bytes) -> None:
    filler = Image.Exif()
    filler[0x010F] = "x" * 400
    room = encode(scene(), "HEIF", quality=95, chroma=444, exif=filler.tobytes())
    end = room.index(b"x" * 400) + 400
    start = max(room.rfind(b"II*\0", 0, end), room.rfind(b"MM\0*", 0, end))
    data = room[:start] + block.ljust(end - start, b"\0") + room[end:]
    np.testing.assert_array_equal(decode_image(data), decode_image(room))


def test_opacity_is_laid_over_white() -> None:
    alpha = np.full((48, 64), 255, np.uint8)
    alpha[:20] = 0
    wanted = scene()
    wanted[:20] = 255
    decoded = decode_image(encode(np.dstack([scene(), alpha]), "HEIF", quality=100, chroma=444))
    assert difference(decoded, wanted) < 6


def test_the_main_picture_is_taken() -> None:
    other = Image.fromarray(scene(seed=1)[::-1].copy())
    data = encode(scene(), "HEIF", save_all=True, append_images=[other], quality=95, chroma=444)
    assert difference(decode_image(data), scene()) < 4


def test_ten_bits_are_scaled() -> None:
    deep = (scene().astype(np.uint16) << 8).tobytes()
    file = pillow_heif.from_bytes("RGB;16", (64, 48), deep)
    stream = io.BytesIO()
    file.save(stream, quality=95, chroma=444, bit_depth=10)
    assert difference(decode_image(stream.getvalue()), scene()) < 4


def test_another_colour_space_is_taken_to_srgb() -> None:
    swapped = scene()[..., ::-1].copy()
    data = encode(swapped, "HEIF", quality=95, chroma=444, icc_profile=swapped_profile())
    assert difference(decode_image(data), scene()) < 5


class TestRefusals:
    def test_it_is_named_among_what_to_send_instead(self) -> None:
        with pytest.raises(InvalidImage, match=r"send JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC$"):
            decode_image(b"%PDF-1.7\n")

    @pytest.mark.parametrize("fraction", [0.05, 0.3, 0.6, 0.9])
    def test_a_file_cut_short(self, fraction: float) -> None:
        with pytest.raises(InvalidImage, match="HEIC"):
            decode_image(HEIC[: int(len(HEIC) * fraction)])

    def test_too_many_pixels_from_the_header(self) -> None:
        with pytest.raises(InvalidImage, match="too many pixels"):
            decode_image(HEIC, limits=DecodeLimits(max_pixels=64 * 48 - 1))

    @pytest.mark.parametrize("size", [(30_000, 30_000), (9_990, 9_990), (0, 0)])
    def test_a_size_that_the_data_does_not_have(self, size: tuple[int, int]) -> None:
        data = bytearray(HEIC)
        start = data.index(b"ispe") + 8
        data[start : start + 8] = b"".join(side.to_bytes(4, "big") for side in size)
        with pytest.raises(InvalidImage):
            decode_image(bytes(data))

    def test_without_the_plug_in_the_package_is_named(self) -> None:
        script = (
            "import sys; sys.modules['pillow_heif'] = None\n"
            "from twinlens.encoders.decode import decode_image, InvalidImage\n"
            "try: decode_image(sys.stdin.buffer.read())\n"
            "except InvalidImage as refusal: print(refusal)"
        )
        done = subprocess.run([sys.executable, "-c", script], input=HEIC, capture_output=True, check=True, timeout=60)
        assert b"pillow-heif" in done.stdout
        assert b"HEIC" in done.stdout
