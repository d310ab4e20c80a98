from __future__ import annotations

import contextlib
import re
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import PNG_SIGNATURE, chunk, encode, png, scene
from twinlens.encoders.decode import DecodeLimits, decode_image
from twinlens.encoders.errors import InvalidImage

KINDS = {
    "JPEG": encode(scene(), "JPEG"),
    "progressive": encode(scene(), "JPEG", progressive=True),
    "PNG": encode(scene(), "PNG"),
    "WEBP": encode(scene(), "WEBP"),
    "lossless WEBP": encode(scene(), "WEBP", lossless=True),
    "GIF": encode(Image.fromarray(scene()).quantize(64), "GIF"),
    "BMP": encode(scene(), "BMP"),
    "TIFF": encode(scene(), "TIFF"),
    "deflated TIFF": encode(scene(), "TIFF", compression="tiff_deflate"),
    "AVIF": encode(scene(), "AVIF"),
}


def reason(data: bytes, limits: DecodeLimits | None = None) -> str:
    with pytest.raises(InvalidImage) as caught:
        decode_image(data, limits=limits or DecodeLimits())
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 250
    return message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"\0" * 4096, "not a picture"),
        (b"just some words", "not a picture"),
        (b"BMW is a maker of cars, and this is a text", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "PostScript"),
        (b"%PDF-1.7\n", "PDF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"<!DOCTYPE html><html>not found</html>", "web page"),
        (b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + bytes(64), "HEIC"),
        (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(40), "JPEG 2000"),
        (b"8BPS\0\1" + bytes(40), "Photoshop"),
        (b"PK\3\4" + bytes(40), "ZIP"),
    ],
)
def test_what_is_not_read_is_named(data: bytes, said: str) -> None:
    assert said in reason(data)


class TestDamage:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("fraction", [0.02, 0.1, 0.4, 0.7, 0.9])
    def test_a_file_cut_short_is_refused(self, kind: str, fraction: float) -> None:
        data = KINDS[kind]
        said = reason(data[: max(1, int(len(data) * fraction))])
        if fraction >= 0.1:  # of less it cannot be told what it was
            assert "cut off" in said or "header" in said

    def test_a_webp_that_lacks_its_last_byte_is_cut_off(self) -> None:
        assert "cut off" in reason(KINDS["WEBP"][:-1])
        assert "cut off" in reason(KINDS["lossless WEBP"][:-1])

    @pytest.mark.parametrize("kind", KINDS)
    def test_bytes_changed_at_random_give_a_picture_or_a_refusal(self, kind: str) -> None:
        rng = np.random.default_rng(7)
        original = np.frombuffer(KINDS[kind], np.uint8)
        for _ in range(60):
            data = original.copy()
            places = rng.integers(0, len(data), rng.integers(1, 12))
            data[places] = rng.integers(0, 256, len(places))
            with contextlib.suppress(InvalidImage):  # and no other exception
                pixels = decode_image(data.tobytes(), limits=DecodeLimits(max_pixels=1_000_000))
                assert pixels.dtype == np.uint8
                assert pixels.shape[2:] == (3,)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_signature_alone_is_refused(self, kind: str) -> None:
        reason(KINDS[kind][:16])

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF"])
    def test_bytes_after_the_end_are_harmless(self, kind: str) -> None:
        whole = decode_image(KINDS[kind])
        np.testing.assert_array_equal(decode_image(KINDS[kind] + b"trailing junk" * 9), whole)


class TestPng:
    def test_a_wrong_checksum_of_pixels_is_refused(self) -> None:
        data = bytearray(KINDS["PNG"])
        data[data.index(b"IDAT") + 40] ^= 0xFF
        assert "checksum" in reason(bytes(data))

    def test_a_wrong_checksum_of_the_header_is_refused(self) -> None:
        data = bytearray(KINDS["PNG"])
        data[19] ^= 1
        assert "checksum" in reason(bytes(data))

    def test_a_wrong_checksum_of_a_comment_costs_the_comment_only(self) -> None:
        data = png(scene(), 8, 2, before=[chunk(b"tEXt", b"Comment\0hello", crc=1)])
        np.testing.assert_array_equal(decode_image(data), scene())

    def test_a_comment_that_unpacks_without_end_is_left_alone(self) -> None:
        bomb = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(64 * 1024 * 1024)))
        np.testing.assert_array_equal(decode_image(png(scene(), 8, 2, before=[bomb])), scene())

    def test_a_profile_that_unpacks_without_end_counts_as_none(self) -> None:
        bomb = chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(8 * 1024 * 1024)))
        np.testing.assert_array_equal(decode_image(png(scene(), 8, 2, before=[bomb])), scene())

    def test_no_pixels_at_all_is_refused(self) -> None:
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
        assert "no picture data" in reason(PNG_SIGNATURE + header + chunk(b"IEND", b""))

    def test_pixel_data_that_ends_early_is_refused(self) -> None:
        rows = zlib.compress(bytes(10))
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", 400, 400, 8, 2, 0, 0, 0))
        reason(PNG_SIGNATURE + header + chunk(b"IDAT", rows) + chunk(b"IEND", b""))

    def test_zero_width_is_refused(self) -> None:
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 4, 8, 2, 0, 0, 0))
        assert "no pixels" in reason(PNG_SIGNATURE + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b""))


def bombs() -> dict[str, bytes]:
    """Small files whose headers claim 30,000 x 20,000 pixels or so."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 20000, 8, 2, 0, 0, 0))
    jpeg = bytearray(KINDS["JPEG"])
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", 20000, 30000)
    gif = bytearray(KINDS["GIF"])
    gif[6:10] = struct.pack("<HH", 30000, 20000)
    bmp = bytearray(KINDS["BMP"])
    bmp[18:26] = struct.pack("<ii", 30000, 20000)
    canvas = (16383 - 1).to_bytes(3, "little") * 2
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + canvas + KINDS["WEBP"][12:]
    tiff = bytearray(KINDS["TIFF"])
    for tag, value in ((256, 30000), (257, 20000)):
        place = re.search(re.escape(struct.pack("<HH", tag, 4)) + rb"|" + re.escape(struct.pack("<HH", tag, 3)), tiff)
        assert place is not None
        tiff[place.start() + 2 : place.start() + 12] = struct.pack("<HII", 4, 1, value)
    return {
        "PNG": PNG_SIGNATURE + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""),
        "JPEG": bytes(jpeg),
        "GIF": bytes(gif),
        "BMP": bytes(bmp),
        "WEBP": b"RIFF" + struct.pack("<I", len(body)) + body,
        "TIFF": bytes(tiff),
    }


class TestLimits:
    @pytest.mark.parametrize("kind", sorted(bombs()))
    def test_too_many_pixels_are_refused_from_the_header(self, kind: str) -> None:
        assert re.fullmatch(
            r"the picture has too many pixels: \d{5} x \d{5}, the limit is 100,000,000", reason(bombs()[kind])
        )

    def test_a_limit_of_pillow_that_is_lower_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
        said = reason(encode(scene(40, 50)))
        assert said == "the picture has too many pixels: 50 x 40, the limit is 1,000"

    def test_the_limit_itself_is_allowed(self) -> None:
        data = encode(scene(40, 50))
        assert decode_image(data, limits=DecodeLimits(max_pixels=2000)).shape == (40, 50, 3)
        said = reason(data, DecodeLimits(max_pixels=1999))
        assert "50 x 40" in said
        assert "1,999" in said

    @pytest.mark.parametrize(("width", "height"), [(1, 1_000_001), (1_000_001, 1)])
    def test_a_picture_of_a_million_rows_is_refused_from_the_header(self, width: int, height: int) -> None:
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        data = PNG_SIGNATURE + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
        assert f"too long: {width} x {height}" in reason(data)
        assert "too long" not in reason(data, DecodeLimits(max_side=1_000_001))

    def test_too_many_bytes_are_refused_before_anything_else(self) -> None:
        data = KINDS["PNG"]
        assert decode_image(data, limits=DecodeLimits(max_bytes=len(data))).shape == (48, 64, 3)
        assert "too large" in reason(data, DecodeLimits(max_bytes=len(data) - 1))

    def test_a_picture_beyond_pillows_warning_level_gives_no_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
        with warnings.catch_warnings(record=True) as escaped:
            warnings.simplefilter("always")
            assert decode_image(encode(scene())).shape == (48, 64, 3)
        assert not escaped

    def test_warnings_do_not_escape_from_threads(self) -> None:
        tags = Image.Exif()
        tags[0x0112] = 3
        data = encode(scene(), "JPEG", exif=tags.tobytes()[:-4])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with ThreadPoolExecutor(4) as pool:
                shapes = {pixels.shape for pixels in pool.map(decode_image, [data] * 40)}
        assert shapes == {(48, 64, 3)}


def test_no_other_program_and_no_torch_is_loaded() -> None:
    script = (
        "import sys; import twinlens.encoders.decode as d\n"
        "try: d.decode_image(b'%!PS-Adobe-3.0 EPSF-3.0\\n%%BoundingBox: 0 0 9 9\\n')\n"
        "except d.InvalidImage: pass\n"
        "bad = {'torch', 'torchvision', 'PIL.EpsImagePlugin', 'onnxruntime'} & set(sys.modules)\n"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
