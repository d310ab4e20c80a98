"""Names of files tell nothing: content does."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import encode, scene
from twinlens.encoders.decode import decode_image
from twinlens.encoders.embed_sources import FolderSource
from twinlens.encoders.errors import InvalidImage

CONTENTS = {kind: encode(scene(), kind) for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "AVIF")}
CONTENTS["GIF"] = encode(Image.fromarray(scene()).quantize(64), "GIF")
NAMES = [
    "photo.jpg",
    "photo.PNG",
    "photo.eps",
    "photo.txt",
    "photo",
    "photo.tar.gz",
    "photo.jpg.exe",
    "-rf.jpg",
    "name with space #1 100%.jpg",
    "new\nline.jpg",
    unicodedata.normalize("NFC", "Käse auf 東京 🐕.jpg"),
    unicodedata.normalize("NFD", "Käse auf 東京 🐕.jpg"),
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
    "x" * 200 + ".jpg",
]


@pytest.mark.parametrize("kind", CONTENTS)
def test_any_name_gives_the_same_picture(kind: str, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(CONTENTS[kind])
    wanted = decode_image(CONTENTS[kind])
    items = list(FolderSource(tmp_path))
    assert len(items) == len(NAMES)
    for item in items:
        assert item.image is not None
        np.testing.assert_array_equal(decode_image(item.image.read_bytes()), wanted)


@pytest.mark.parametrize("name", ["photo.jpg", "photo.png", "photo.gif", "photo.avif", "photo.heic"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html>\n<html><title>404 Not Found</title></html>", "web page"),
        (b"\r\n\r\n<HTML><HEAD>", "web page"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"%PDF-1.7\n", "PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript"),
        (b"PK\3\4" + bytes(60), "ZIP"),
        (b'{"error": "not found"}', "not a picture"),
        (bytes(4096), "not a picture"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "not a picture"),
    ],
    ids=["nothing", "page", "page after blank lines", "SVG", "PDF", "EPS", "ZIP", "JSON", "zeros", "pointer"],
)
def test_what_only_has_the_name_of_a_picture_is_refused_for_what_it_is(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    (item,) = FolderSource(tmp_path)
    assert item.image is not None
    with pytest.raises(InvalidImage, match=said):
        decode_image(item.image.read_bytes())
