"""The one decode contract of trainer, indexer and server: bytes in, RGB uint8 out.

Content decides, never a file name. Whatever is wrong with the bytes, only `InvalidImage` comes out.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import AvifImagePlugin, Image, ImageFile, UnidentifiedImageError

from twinlens.encoders import webp_header
from twinlens.encoders.avif_boxes import without_exif
from twinlens.encoders.colour import to_srgb
from twinlens.encoders.errors import InvalidImage
from twinlens.encoders.gif_blocks import Box, first_frame
from twinlens.encoders.jpeg_segments import checked_jpeg
from twinlens.encoders.png_chunks import bit_depth, checked_png
from twinlens.encoders.sniff import READABLE, SNIFF_BYTES, sniff
from twinlens.encoders.tiff_layout import Layout, can_be_whole, checked_layout, unread

# Raised whenever the same bytes would come out as other pixels; part of a bundle's space.
DECODE_CONTRACT: Final = 1

_ORIENTATION_TAG = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pillow unpacks a BMP's run lengths in Python, a pixel or two at a time.
_RUN_LENGTHS = frozenset({1, 2})
_MAX_RUN_BYTES, _MAX_RUN_PIXELS = 4 * 1024 * 1024, 16_000_000

# NumPy gets Pillow's pixels by way of a further copy; by parts it stays small.
_COPIED_PIXELS = 4_000_000

# In these the container says how the picture lies; their specifications have readers ignore EXIF and XMP in that. The
# plug-ins see to EXIF; Pillow would look into XMP where there is none.
_TURNED_BY_BOXES = frozenset({"AVIF", "HEIF"})

# One thread a picture: the pools above decide how many pictures are decoded at once.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Caps checked from the length and the header, before any pixel is decoded."""

    max_bytes: int = 64 * 1024 * 1024
    max_pixels: int = 100_000_000
    max_side: int = 1_000_000  # Pillow keeps some 20 bytes a row: a picture 1 pixel wide would take 2 GB


DEFAULT_LIMITS: Final = DecodeLimits()


def decode_image(
    data: bytes, *, min_side: int | None = None, limits: DecodeLimits = DEFAULT_LIMITS
) -> NDArray[np.uint8]:
    """Decodes an encoded picture (JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF; HEIC where the plug-in is installed).

    First frame of animations; EXIF orientation applied once; embedded profile to sRGB; deep samples scaled;
    transparency over white.

    Args:
        data: The file's bytes.
        min_side: The shorter side the caller will scale down to. A JPEG may then be decoded at a reduced scale whose
            shorter side is still at least twice that.
        limits: Caps on bytes and pixels.

    Returns:
        RGB pixels, shape (h, w, 3), contiguous and writable.

    Raises:
        InvalidImage: for anything else; the message is one line a person understands.
        ValueError: if `min_side` is not positive.
    """
    picture = decode_picture(data, min_side=min_side, limits=limits)
    width, height = picture.size
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    rows = max(1, _COPIED_PIXELS // width)
    for top in range(0, height, rows):
        bottom = min(height, top + rows)
        pixels[top:bottom] = np.asarray(picture if rows >= height else picture.crop((0, top, width, bottom)))
    return pixels


def decode_picture(data: bytes, *, min_side: int | None = None, limits: DecodeLimits = DEFAULT_LIMITS) -> Image.Image:
    """As `decode_image`, to a Pillow picture of mode RGB without metadata."""
    if min_side is not None and min_side < 1:
        msg = f"min_side must be at least 1, got {min_side}"
        raise ValueError(msg)
    if len(data) > limits.max_bytes:
        msg = f"the file is too large: {len(data):,} bytes, the limit is {limits.max_bytes:,}"
        raise InvalidImage(msg)
    kind = _readable_format(data)
    _silence_pillow()
    try:
        try:
            return _decode(data, kind, min_side, limits)
        except ValueError as error:
            if kind != "AVIF" or "Exif" not in str(error):
                raise
            return _decode(without_exif(data), kind, min_side, limits)
    except InvalidImage:
        raise
    except MemoryError:
        raise InvalidImage("the picture needs more memory than there is") from None
    except Exception as error:  # Pillow's plug-ins raise whatever their parsing trips over
        raise InvalidImage(_refusal(_SPOKEN.get(kind, kind), error)) from error


def _decode(data: bytes, kind: str, min_side: int | None, limits: DecodeLimits) -> Image.Image:
    sample_bits: int | None = None
    frame: Box | None = None
    layout: Layout = {}
    whole = True
    if kind == "JPEG":
        data, whole = checked_jpeg(data)
    elif kind == "PNG":
        data = checked_png(data)
        sample_bits = bit_depth(data)
    elif kind == "GIF":
        data, frame, size = first_frame(data)
        _check_size(*size, limits)
    elif kind == "TIFF":
        layout = checked_layout(data)
        whole = can_be_whole(layout, len(data))
    elif kind == "WEBP" and (canvas := webp_header.canvas_size(data)) is not None:
        _check_size(*canvas, limits)  # opening a WebP already takes the memory of its canvas
        if not webp_header.can_be_whole(data):
            raise InvalidImage("the WebP is damaged: it is cut off")
    with _open(data, kind, layout, limits) as picture:
        _check_size(*picture.size, limits)
        if not whole:
            msg = f"the {kind} is damaged: it is cut off"
            raise InvalidImage(msg)
        if kind == "BMP":
            _check_runs(picture, len(data))
        if min_side is not None and kind == "JPEG":
            # Pillow picks the smallest of 1/2, 1/4, 1/8 that is not below the size asked for.
            picture.draft(None, (2 * min_side, 2 * min_side))
        picture.load()
        if kind in _TURNED_BY_BOXES:
            picture.info.pop("xmp", None)
        upright = _TRANSPOSE.get(_orientation(picture))
        visible = _without_empty_alpha(picture) if kind == "BMP" else picture
        rgb = to_srgb(visible, sample_bits=sample_bits)
        if frame is not None and frame != (0, 0, *rgb.size):
            rgb = _over_white(rgb, frame)
        if upright is not None:
            rgb = rgb.transpose(upright)
    rgb.info.clear()
    return rgb


def _open(data: bytes, kind: str, layout: Layout, limits: DecodeLimits) -> ImageFile.ImageFile:
    try:
        return Image.open(io.BytesIO(data), formats=[kind])
    except Image.DecompressionBombError:
        # Pillow's own limit, whose message has no width and height; its plug-in read them from the header.
        allowed = min(limits.max_pixels, 2 * (Image.MAX_IMAGE_PIXELS or limits.max_pixels))
        with Image.OPEN[kind][0](io.BytesIO(data), "") as picture:
            _check_size(*picture.size, replace(limits, max_pixels=allowed))
        raise
    except UnidentifiedImageError:
        if kind == "TIFF":
            raise InvalidImage(unread(layout)) from None
        raise


def _check_runs(picture: ImageFile.ImageFile, size: int) -> None:
    if picture.info.get("compression") in _RUN_LENGTHS and (
        size > _MAX_RUN_BYTES or picture.width * picture.height > _MAX_RUN_PIXELS
    ):
        raise InvalidImage("this kind of BMP is not read: run lengths in so large a picture")


def _without_empty_alpha(picture: Image.Image) -> Image.Image:
    """Many programs leave a BMP's alpha at 0: where nothing at all would show, all of it shows, as in browsers."""
    if picture.mode == "RGBA" and picture.getchannel("A").getextrema() == (0, 0):
        return picture.convert("RGB")
    return picture


def _over_white(canvas: Image.Image, frame: Box) -> Image.Image:
    """What a GIF's first frame leaves free is transparent; Pillow fills it with the first colour of the palette."""
    result = Image.new("RGB", canvas.size, (255, 255, 255))
    result.paste(canvas.crop(frame), frame)
    return result


def _check_size(width: int, height: int, limits: DecodeLimits) -> None:
    if width < 1 or height < 1:
        raise InvalidImage("the picture has no pixels")
    if width * height > limits.max_pixels:
        msg = f"the picture has too many pixels: {width} x {height}, the limit is {limits.max_pixels:,}"
        raise InvalidImage(msg)
    if max(width, height) > limits.max_side:
        msg = f"the picture is too long: {width} x {height}, the limit of a side is {limits.max_side:,}"
        raise InvalidImage(msg)


def _readable_format(data: bytes) -> str:
    if not data:
        raise InvalidImage("the image is empty (0 bytes)")
    kind = sniff(data[:SNIFF_BYTES])
    if kind is None:
        raise InvalidImage("this is not a picture in a format we know")
    if kind not in READABLE:
        wanted = "JPEG, PNG, WebP, GIF, BMP, TIFF" + (", AVIF or HEIC" if _heif_plugin() else " or AVIF")
        msg = f"this is {_SPOKEN.get(kind, kind)}, which is not read; send {wanted}"
        raise InvalidImage(msg)
    if kind == "HEIF" and not _heif_plugin():
        raise InvalidImage("this is HEIC/HEIF, which needs the package pillow-heif on the machine that reads it")
    return kind


@cache
def _heif_plugin() -> bool:
    try:
        import pillow_heif  # noqa: PLC0415 - an optional plug-in
    except ImportError:
        return False
    pillow_heif.register_heif_opener(thumbnails=False)
    pillow_heif.options.DECODE_THREADS = 1
    return True


def _orientation(picture: ImageFile.ImageFile) -> int:
    """The orientation tag of EXIF or XMP; 1 where it is missing, impossible or unreadable."""
    try:
        value = picture.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # broken metadata never costs the picture
        return 1
    return value if isinstance(value, int) else 1


def _silence_pillow() -> None:
    """Keeps Pillow's warnings about odd files from escaping; `catch_warnings` would not be thread-safe."""
    if not warnings.filters or warnings.filters[0] != _PILLOW_FILTER[0]:
        warnings.filterwarnings("ignore", module=_PILLOW_MODULES)
        _PILLOW_FILTER[0] = warnings.filters[0]


_PILLOW_MODULES = r"PIL(\.|$)"
_PILLOW_FILTER: list[object] = [None]
# How Pillow's plug-ins say that a codec made nothing of the data; the last is WebP's.
_BROKEN_DATA = ("decoder error", "broken data stream", "unrecognized data stream", "could not create decoder object")
_SPOKEN = {"WEBP": "WebP", "HEIF": "HEIC/HEIF", "SVG": "an SVG drawing", "HTML": "a web page (HTML)"}


def _refusal(kind: str, error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"the {kind} is damaged: its header cannot be read"
    text = "".join(c if c.isprintable() else " " for c in str(error)).strip()[:120] or type(error).__name__
    if "truncated" in text.lower():
        return f"the {kind} is damaged: it is cut off"
    if "unsupported" in text.lower() or "not supported" in text.lower():
        return f"this kind of {kind} is not read: {text}"
    if text.startswith(_BROKEN_DATA):
        return f"the {kind} is damaged: its picture data is broken"
    return f"the {kind} is damaged: {text}"
