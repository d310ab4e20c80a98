from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import chunk, difference, encode, png, scene
from tests.support.jpeg_files import segment, with_segments
from tests.support.orientations import UPRIGHT, exif
from tests.support.tiff_files import ORDERS, Order, Values, tiff_of_pixels
from twinlens.encoders.decode import decode_image

LOSSLESS = {"PNG": {}, "WEBP": {"lossless": True}, "TIFF": {}}
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="{}"/></rdf:RDF></x:xmpmeta>'
)


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


@pytest.mark.parametrize("form", [XMP, "<rdf:RDF><tiff:Orientation>{}</tiff:Orientation></rdf:RDF>"])
@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_in_xmp_alone_is_applied(kind: str, orientation: int, form: str) -> None:
    stored, xmp = scene(), form.replace("{}", str(orientation)).encode()
    match kind:
        case "PNG":
            data = png(stored, 8, 2, before=[chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)])
        case "TIFF":
            data = encode(stored, kind, tiffinfo={700: xmp})
        case _:
            data = encode(stored, kind, quality=95, subsampling=0, lossless=True, xmp=xmp)
    decoded = decode_image(data)
    assert difference(decoded, UPRIGHT[orientation](stored)) < (4 if kind == "JPEG" else 0.1)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_in_avif_the_boxes_alone_count(orientation: int) -> None:
    plain = encode(scene(), "AVIF", quality=95, subsampling="4:4:4")
    leftover = encode(scene(), "AVIF", quality=95, subsampling="4:4:4", xmp=XMP.format(orientation).encode())
    np.testing.assert_array_equal(decode_image(leftover), decode_image(plain))


def test_orientation_in_both_exif_and_xmp_is_applied_once() -> None:
    stored = scene()
    data = encode(stored, "WEBP", lossless=True, exif=exif(6), xmp=XMP.format(6).encode())
    np.testing.assert_array_equal(decode_image(data), UPRIGHT[6](stored))


@pytest.mark.parametrize("value", [0, 9, 255, 65535])
def test_an_impossible_orientation_counts_as_upright(value: int) -> None:
    np.testing.assert_array_equal(decode_image(encode(scene(), "PNG", exif=exif(value))), scene())


def entry(kind: int, count: int, value: bytes, *, tag: int = 0x0112, order: Order = "<") -> bytes:
    """A directory entry with its value in place."""
    return struct.pack(order + "HHI", tag, kind, count) + value.ljust(4, b"\0")


def block(*entries: bytes, order: Order = "<", after: int = 0) -> bytes:
    """An EXIF block of one directory, and where the next one is."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    count = struct.pack(order + "H", len(entries))
    return (
        b"Exif\0\0" + mark + struct.pack(order + "I", 8) + count + b"".join(entries) + struct.pack(order + "I", after)
    )


BROKEN = {
    "empty": b"",
    "header only": b"Exif\0\0",
    "half a header": b"Exif\0\0II",
    "another byte order": b"Exif\0\0XX*\0\x08\0\0\0",
    "garbage": b"Exif\0\0garbage that is no directory",
    "offset beyond": b"Exif\0\0II*\0\xff\xff\xff\xff",
    "offset into itself": b"Exif\0\0II*\0\0\0\0\0" + bytes(30),
    "too many entries": b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01\x12" * 40,
    "cut": exif(6)[:-9],
    "no entries": block(),
    "orientation as text": block(entry(2, 2, b"6\0")),
    "orientation as a fraction": block(entry(5, 1, struct.pack("<I", 8))),
    "orientation of no values": block(entry(3, 0, b"\6\0")),
    "orientation of a billion values": block(entry(3, 1 << 30, b"\6\0\0\0")),
    "orientation of an unknown type": block(entry(99, 1, b"\6\0")),
    "orientation as bytes": block(entry(7, 1, b"\6")),
    "float": block(entry(11, 1, struct.pack("<f", float("nan")))),
    "only in the thumbnail's directory": block(entry(3, 1, b"\1\0", tag=0x0128), after=26)
    + struct.pack("<H", 1)
    + entry(3, 1, b"\6\0")
    + bytes(4),
    "only in a sub-directory": block(entry(4, 1, struct.pack("<I", 26), tag=0x8769))
    + struct.pack("<H", 1)
    + entry(3, 1, b"\6\0")
    + bytes(4),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_broken_exif_never_costs_the_picture_or_turns_it(kind: str, name: str) -> None:
    plain = encode(scene(), kind, quality=95, lossless=True) if kind != "PNG" else encode(scene())
    data = with_exif(plain, kind, BROKEN[name])
    decoded = decode_image(data)
    if name == "cut":  # the orientation itself is whole
        assert decoded.size == scene().size
    else:
        np.testing.assert_array_equal(decoded, decode_image(plain))


def with_exif(data: bytes, kind: str, exif_block: bytes) -> bytes:
    """Puts any bytes in the place of EXIF; writers refuse what cannot be read."""
    if kind == "JPEG":
        return with_segments(data, segment(0xE1, exif_block))
    if kind == "PNG":
        return data[:33] + chunk(b"eXIf", exif_block.removeprefix(b"Exif\0\0")) + data[33:]
    if kind == "WEBP":
        room = encode(scene(), "WEBP", lossless=True, exif=exif(1))
        start = room.index(b"EXIF")
        body = exif_block + b"\0" * (len(exif_block) % 2)
        whole = room[8:start] + b"EXIF" + struct.pack("<I", len(exif_block)) + body
        return b"RIFF" + struct.pack("<I", len(whole)) + whole
    # The item's place and length stay what they are: AVIF keeps them in another box.
    filler = Image.Exif()
    filler[0x010F] = "x" * 400
    room = encode(scene(), "AVIF", quality=95, exif=filler.tobytes())
    end = room.index(b"x" * 400) + 400
    start = max(room.rfind(b"II*\0", 0, end), room.rfind(b"MM\0*", 0, end))
    return room[:start] + exif_block.removeprefix(b"Exif\0\0").ljust(end - start, b"\0") + room[end:]


class TestReadable:
    """What is odd but says clearly what it means."""

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("kind", [3, 4, 9], ids=["short", "long", "signed long"])
    def test_any_whole_number_type_in_either_byte_order(self, order: Order, kind: int) -> None:
        value = struct.pack(order + ("H" if kind == 3 else "I"), 6)
        data = with_exif(encode(scene()), "PNG", block(entry(kind, 1, value, order=order), order=order))
        np.testing.assert_array_equal(decode_image(data), UPRIGHT[6](scene()))

    def test_a_doubled_header_is_read(self) -> None:
        jpeg = encode(scene(), "JPEG", quality=95)
        doubled = with_segments(jpeg, segment(0xE1, b"Exif\0\0" + block(entry(3, 1, b"\6\0"))))
        np.testing.assert_array_equal(decode_image(doubled), UPRIGHT[6](decode_image(jpeg)))

    def test_the_first_of_two_blocks_counts(self) -> None:
        jpeg = encode(scene(), "JPEG", quality=95)
        both = [segment(0xE1, block(entry(3, 1, bytes([value, 0])))) for value in (6, 3)]
        np.testing.assert_array_equal(decode_image(with_segments(jpeg, *both)), UPRIGHT[6](decode_image(jpeg)))

    def test_a_directory_that_is_its_own_successor_is_read_once(self) -> None:
        data = with_exif(encode(scene()), "PNG", block(entry(3, 1, b"\6\0"), after=8))
        np.testing.assert_array_equal(decode_image(data), UPRIGHT[6](scene()))

    def test_the_thumbnails_own_orientation_does_not_count(self) -> None:
        thumbnail = struct.pack("<H", 1) + entry(3, 1, b"\3\0") + bytes(4)
        data = with_exif(encode(scene()), "PNG", block(entry(3, 1, b"\6\0"), after=26) + thumbnail)
        np.testing.assert_array_equal(decode_image(data), UPRIGHT[6](scene()))

    def test_exif_counts_before_xmp(self) -> None:
        upright = encode(scene(), "WEBP", lossless=True, exif=exif(1), xmp=XMP.format(6).encode())
        np.testing.assert_array_equal(decode_image(upright), scene())
        turned = encode(scene(), "WEBP", lossless=True, exif=exif(8), xmp=XMP.format(1).encode())
        np.testing.assert_array_equal(decode_image(turned), UPRIGHT[8](scene()))

    @pytest.mark.parametrize("value", ["0", "9", "-1", "six", ""])
    def test_an_impossible_orientation_in_xmp_counts_as_upright(self, value: str) -> None:
        data = encode(scene(), "WEBP", lossless=True, xmp=XMP.replace("{}", value).encode())
        np.testing.assert_array_equal(decode_image(data), scene())


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("packed", ["raw", "tiff_lzw", "jpeg"])
def test_orientation_of_a_tiff_of_any_packing_is_applied_once(packed: str, orientation: int) -> None:
    plain = decode_image(encode(scene(), "TIFF", compression=packed))
    data = encode(scene(), "TIFF", compression=packed, tiffinfo={0x0112: orientation})
    np.testing.assert_array_equal(decode_image(data), UPRIGHT[orientation](plain))


@pytest.mark.parametrize("order", ORDERS)
def test_orientation_of_a_tiff_in_odd_forms(order: Order) -> None:
    for impossible in (0, 9, 65_535, 1 << 31):
        np.testing.assert_array_equal(decode_image(tiff_of_pixels(scene(), {0x0112: impossible}, order=order)), scene())
    readable: Values
    for readable in (6, [6, 1]):  # as a long number, and as two
        decoded = decode_image(tiff_of_pixels(scene(), {0x0112: readable}, order=order))
        np.testing.assert_array_equal(decoded, UPRIGHT[6](scene()))


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
