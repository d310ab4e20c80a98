"""From what a caller calls a picture to the encoded bytes that travel."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.client.types import ImageInput, ItemError

if TYPE_CHECKING:
    from PIL.Image import Image

# What one message may hold, less room for the fields around the picture.
MAX_IMAGE_BYTES = 63 * 1024 * 1024

# Modes that PNG or TIFF keep as they are. Others (YCbCr, HSV, premultiplied alpha) travel as the RGB they stand for:
# Pillow writes YCbCr to TIFF, but reads it back only from version 13 on.
_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
_TIFF_MODES = {"CMYK", "LAB", "PA", "I", "F", "I;16B", "I;16L"}


def read_image(source: ImageInput) -> bytes | ItemError:
    """The encoded bytes of a picture, or why there are none.

    Args:
        source: A path, encoded bytes (passed on as they are; the server decides what it reads), or a Pillow picture.

    Raises:
        TypeError: if `source` is none of these.
    """
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            found = path.stat()
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # a pipe may never end
                return ItemError("INVALID_IMAGE", f"cannot read {os.fspath(source)!r}: it is not a file")
            if found.st_size > MAX_IMAGE_BYTES:
                return _too_big(found.st_size)
            data = path.read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = getattr(error, "strerror", None) or str(error)
            return ItemError("INVALID_IMAGE", f"cannot read {os.fspath(source)!r}: {reason}")
    elif hasattr(source, "save") and hasattr(source, "mode"):
        if not (source.width and source.height):
            return ItemError("INVALID_IMAGE", "the picture has no pixels")
        data = _encode(source)
    else:
        raise TypeError(f"a picture is a path, bytes or a Pillow image, not {type(source).__name__}")
    if not data:
        return ItemError("INVALID_IMAGE", "the image is empty (0 bytes)")
    if len(data) > MAX_IMAGE_BYTES:
        return _too_big(len(data))
    return data


def _encode(picture: Image) -> bytes:
    if picture.mode not in _PNG_MODES | _TIFF_MODES:
        picture = picture.convert({"La": "LA", "RGBa": "RGBA"}.get(picture.mode, "RGB"))
    buffer = io.BytesIO()
    if picture.mode in _PNG_MODES:
        picture.save(buffer, format="PNG", compress_level=1)
    else:
        picture.save(buffer, format="TIFF")
    return buffer.getvalue()


def _too_big(size: int) -> ItemError:
    return ItemError(
        "INVALID_IMAGE", f"{size / 2**20:.0f} MiB are more than the {MAX_IMAGE_BYTES // 2**20} MiB that can be sent"
    )
