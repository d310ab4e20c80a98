"""Pictures of one colour, which every encoder of the tests tells apart."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
}


def solid(colour: str, form: str = "PNG", size: tuple[int, int] = (48, 40)) -> bytes:
    """An encoded picture of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", size, COLOURS[colour]).save(buffer, format=form)
    return buffer.getvalue()


def write_folder(folder: Path) -> Path:
    """A folder of four pictures, one of them in a folder below, one broken one, and a file that is none."""
    (folder / "sub").mkdir(parents=True)
    for colour in ("red", "green", "blue"):
        (folder / f"{colour}.png").write_bytes(solid(colour))
    (folder / "sub" / "yellow.jpg").write_bytes(solid("yellow", "JPEG"))
    (folder / "sub" / "broken.png").write_bytes(b"this is no picture")
    (folder / "notes.txt").write_text("not a picture")
    return folder
