from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import difference, encode, scene
from twinlens.encoders.decode import decode_image

Array = np.ndarray

# EXIF 2.3, table 6, as NumPy sees it: from the stored pixels to the upright ones.
UPRIGHT: dict[int, Callable[[Array], Array]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}
LOSSLESS = {"PNG": {}, "WEBP": {"lossless": True}, "TIFF": {}}
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="{}"/></rdf:RDF></x:xmpmeta>'
)


def exif(orientation: object) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", LOSSLESS)
def test_orientation_is_applied_exactly_once(kind: str, orientation: int) -> None:
    stored = scene()
    options = {"exif": exif(orientation)} if kind != "TIFF" else {"tiffinfo": {0x0112: orientation}}
    decoded = decode_image(encode(stored, kind, **LOSSLESS[kind], **options))
    np.testing.assert_array_equal(decoded, UPRIGHT[orientation](stored))


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_orientation_is_applied_to_lossy_formats(kind: str, orientation: int) -> None:
    stored = scene()
    decoded = decode_image(encode(stored, kind, quality=95, subsampling="4:4:4", exif=exif(orientation)))
    assert difference(decoded, UPRIGHT[orientation](stored)) < 4


@pytest.mark.parametrize("orientation", [3, 6])
def test_orientation_of_a_reduced_jpeg_is_applied(orientation: int) -> None:
    stored = scene(400, 600)
    data = encode(stored, "JPEG", quality=95, exif=exif(orientation))
    reduced = decode_image(data, min_side=50)
    wanted = Image.fromarray(np.ascontiguousarray(UPRIGHT[orientation](stored))).resize(reduced.shape[1::-1])
    assert difference(reduced, np.asarray(wanted)) < 6


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_orientation_in_xmp_alone_is_applied(orientation: int) -> None:
    stored = scene()
    data = encode(stored, "WEBP", lossless=True, xmp=XMP.format(orientation).encode())
    np.testing.assert_array_equal(decode_image(data), UPRIGHT[orientation](stored))


def test_orientation_in_both_exif_and_xmp_is_applied_once() -> None:
    stored = scene()
    data = encode(stored, "WEBP", lossless=True, exif=exif(6), xmp=XMP.format(6).encode())
    np.testing.assert_array_equal(decode_image(data), UPRIGHT[6](stored))


@pytest.mark.parametrize("value", [0, 9, 255, 65535])
def test_an_impossible_orientation_counts_as_upright(value: int) -> None:
    np.testing.assert_array_equal(decode_image(encode(scene(), "PNG", exif=exif(value))), scene())


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0garbage that is no directory",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01\x12" * 40,
        exif(6)[:-9],
    ],
    ids=["empty", "header only", "garbage", "offset beyond", "too many entries", "cut"],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_never_costs_the_picture(kind: str, block: bytes) -> None:
    decoded = decode_image(encode(scene(), kind, exif=block))
    assert decoded.size == scene().size


def test_an_orientation_beside_a_broken_tag_is_applied() -> None:
    orientation = struct.pack("<HHII", 0x0112, 3, 1, 3)
    resolution_beyond_the_block = struct.pack("<HHII", 0x011A, 5, 1, 0xFFFF)
    block = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 2) + orientation + resolution_beyond_the_block + bytes(4)
    np.testing.assert_array_equal(decode_image(encode(scene(), "PNG", exif=block)), UPRIGHT[3](scene()))


def test_transparency_is_turned_with_the_picture() -> None:
    stored = np.dstack([scene(), np.full((48, 64), 255, np.uint8)])
    stored[:10, :, 3] = 0
    decoded = decode_image(encode(stored, "PNG", exif=exif(6)))
    white = stored[..., :3].copy()
    white[:10] = 255
    np.testing.assert_array_equal(decoded, UPRIGHT[6](white))
