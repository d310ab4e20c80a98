"""From what a caller calls a picture to what travels: its encoded bytes, or its address."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinlens.client.errors import TwinlensError
from twinlens.client.metadata import check_text
from twinlens.client.types import ImageInput, ImageUrl, ItemError

if TYPE_CHECKING:
    from PIL.Image import Image

# What one message may hold, less room for the fields around the picture.
MAX_IMAGE_BYTES = 63 * 1024 * 1024

# Modes that PNG or TIFF keep as they are. Others (YCbCr, HSV, premultiplied alpha) travel as the RGB they stand for:
# Pillow writes YCbCr to TIFF, but reads it back only from version 13 on.
_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
_TIFF_MODES = {"CMYK", "LAB", "PA", "I", "F", "I;16B", "I;16L"}

_CHANNELS = {3, 4}  # of pixels: RGB, RGBA


def picture(source: ImageInput) -> bytes | ImageUrl | ItemError:
    """The encoded bytes of a picture, or the address that the server fetches it from, or why there is neither.

    Args:
        source: As for `read_image`; or an address.

    Raises:
        TypeError: if `source` is none of these.
    """
    if not isinstance(source, ImageUrl):
        return read_image(source)
    try:
        check_text(source.url, "the address")
    except TwinlensError as error:
        return ItemError("INVALID_INPUT", error.message)
    return source if source.url else ItemError("INVALID_INPUT", "the address of the picture is empty")


def read_image(source: ImageInput) -> bytes | ItemError:
    """The encoded bytes of a picture, or why there are none.

    Args:
        source: A path, encoded bytes (passed on as they are; the server decides what it reads), a Pillow picture, or
            pixels: uint8 of shape (h, w), (h, w, 3) or (h, w, 4).

    Raises:
        TypeError: if `source` is none of these.
    """
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str | os.PathLike):
        read = _read_file(source)
        if isinstance(read, ItemError):
            return read
        data = read
    elif isinstance(source, np.ndarray):
        if not _are_pixels(source):
            return ItemError(
                "INVALID_IMAGE",
                f"pixels are uint8 of shape (h, w), (h, w, 3) or (h, w, 4), not {source.dtype} of {source.shape}",
            )
        data = _encode_pixels(source)
    elif hasattr(source, "save") and hasattr(source, "mode") and not isinstance(source, ImageUrl):
        if not (source.width and source.height):
            return ItemError("INVALID_IMAGE", "the picture has no pixels")
        data = _encode(source)
    else:
        raise TypeError(f"a picture is a path, bytes, pixels or a Pillow image, not {type(source).__name__}")
    if not data:
        return ItemError("INVALID_IMAGE", "the image is empty (0 bytes)")
    if len(data) > MAX_IMAGE_BYTES:
        return _too_big(len(data))
    return data


def _read_file(source: str | os.PathLike[str]) -> bytes | ItemError:
    shown = repr(os.fspath(source))
    path = Path(source)
    try:
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # a pipe may never end
            return ItemError("INVALID_IMAGE", f"cannot read {shown}: it is not a file")
        if found.st_size > MAX_IMAGE_BYTES:
            return _too_big(found.st_size)
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(source, str) and source.lower().startswith(("http://", "https://")):
            return ItemError("INVALID_IMAGE", f"{shown} is no file: give ImageUrl({shown}) for the server to fetch it")
        return ItemError("INVALID_IMAGE", f"cannot read {shown}: {getattr(error, 'strerror', None) or error}")


def _are_pixels(array: NDArray[Any]) -> bool:
    known = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _CHANNELS)
    return known and array.dtype == np.uint8 and array.size > 0


def _encode_pixels(array: NDArray[np.uint8]) -> bytes:
    from PIL import Image  # noqa: PLC0415 - whoever sends files needs none

    return _encode(Image.fromarray(np.ascontiguousarray(array)))


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
