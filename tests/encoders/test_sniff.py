from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import encode, scene
from twinlens.encoders.sniff import IMAGE_SUFFIXES, READABLE, SNIFF_BYTES, looks_like_image, sniff


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "AVIF"])
def test_what_we_read_is_known_by_its_first_bytes(kind: str) -> None:
    assert sniff(encode(scene(), kind)[:SNIFF_BYTES]) == kind
    assert kind in READABLE


def test_gif_is_known_by_its_first_bytes() -> None:
    assert sniff(encode(Image.fromarray(scene()).quantize(8), "GIF")[:SNIFF_BYTES]) == "GIF"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIF"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "AVIF"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIF"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", "MP4"),
        (b"\xef\xbb\xbf  \n<SVG xmlns=", "SVG"),
        (b"<html>", "HTML"),
        (b"%PDF-1.4", "PDF"),
        (b"\xff\x0a", "JPEG XL"),
        (b"\0\0\1\0", "ICO"),
        (b"\x1f\x8b", "gzip"),
    ],
)
def test_what_else_is_named(head: bytes, kind: str) -> None:
    assert sniff(head) == kind


@pytest.mark.parametrize(
    "head", [b"", b"B", b"BM", b"BMW cars are", b"RIFF\0\0\0\0WAVEfmt ", b"hello", b"{}", b"\0" * 64]
)
def test_what_is_unknown_has_no_name(head: bytes) -> None:
    assert sniff(head) is None


def test_no_start_of_a_file_breaks_it() -> None:
    rng = np.random.default_rng(3)
    heads = [encode(scene(), kind)[:SNIFF_BYTES] for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "AVIF")]
    for head in heads:
        for length in range(len(head)):
            sniff(head[:length])
            sniff(head[:length] + rng.bytes(8))


@pytest.mark.parametrize(
    ("name", "head", "counts"),
    [
        ("a.jpg", b"not a picture at all", True),
        ("a.JPEG", b"", True),
        ("no_suffix", encode(scene())[:SNIFF_BYTES], True),
        ("named.txt", encode(scene())[:SNIFF_BYTES], True),
        ("notes.txt", b"BMW and other words", False),
        ("data.json", b"{}", False),
        ("drawing.svg", b"<svg>", False),
        ("paper.pdf", b"%PDF-1.4", False),
        ("film.mp4", b"\0\0\0\x18ftypisom\0\0\0\0isommp42", False),
    ],
)
def test_a_file_counts_as_a_picture_by_suffix_or_by_content(name: str, head: bytes, counts: bool) -> None:
    assert looks_like_image(name, head) is counts


def test_the_client_has_the_same_rule() -> None:
    """Neither room may import the other, so each has its own copy."""
    from twinlens.client import sniff as clients

    assert clients.IMAGE_SUFFIXES == IMAGE_SUFFIXES
    assert clients.SNIFF_BYTES == SNIFF_BYTES
