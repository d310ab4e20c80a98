"""From a decoded picture to the image tower's input: open_clip's `image_transform_v2` without torch."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from twinlens.encoders.decode import DEFAULT_LIMITS, DecodeLimits, decode_picture
from twinlens.encoders.manifest import PreprocessSpec

_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# Up to this ratio of the sides the picture is resized whole and then cropped, as the reference does. Beyond it only the
# part under the crop is computed, so that 1 x 20000 pixels never become 224 x 4,480,000. Both give the same pixels but
# for rounding: Pillow picks the order of its two passes by their cost, and clips to 8 bit in between.
_WHOLE_RATIO = 16


def preprocess(rgb: NDArray[np.uint8], spec: PreprocessSpec) -> NDArray[np.float32]:
    """Resizes, crops or pads, and normalises, as the checkpoint was trained.

    Args:
        rgb: Pixels, shape (h, w, 3).
        spec: The manifest's preprocessing.

    Returns:
        The tower's input, shape (3, size, size): (rgb / 255 - mean) / std.

    Raises:
        ValueError: if the shape is not (h, w, 3) with at least one pixel.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        msg = f"pixels of shape (h, w, 3) wanted, got {rgb.shape}"
        raise ValueError(msg)
    return preprocess_picture(Image.fromarray(np.ascontiguousarray(rgb)), spec)


def preprocess_picture(picture: Image.Image, spec: PreprocessSpec) -> NDArray[np.float32]:
    """As `preprocess`, from a Pillow picture of mode RGB."""
    return normalise(fit(picture, spec), spec)


def load_pixels(data: bytes, spec: PreprocessSpec, limits: DecodeLimits = DEFAULT_LIMITS) -> NDArray[np.float32]:
    """Decodes and preprocesses.

    Raises:
        InvalidImage: if the bytes are not a picture we read, or break a limit.
    """
    return preprocess_picture(decode_picture(data, min_side=spec.resize_size, limits=limits), spec)


def fit(picture: Image.Image, spec: PreprocessSpec) -> Image.Image:
    """The geometric part: a picture of `size` x `size`."""
    match spec.resize_mode:
        case "shortest":
            return _shortest(picture, spec)
        case "squash":
            side = (spec.resize_size, spec.resize_size)
        case "longest":
            ratio = max(picture.width, picture.height) / spec.resize_size
            side = (max(1, round(picture.width / ratio)), max(1, round(picture.height / ratio)))
        case _:
            assert_never(spec.resize_mode)
    return _centre(picture.resize(side, _RESAMPLING[spec.interpolation]), spec.size, spec.fill)


def _shortest(picture: Image.Image, spec: PreprocessSpec) -> Image.Image:
    width, height = picture.size
    if width <= height:
        new_width, new_height = spec.resize_size, int(spec.resize_size * height / width)
    else:
        new_width, new_height = int(spec.resize_size * width / height), spec.resize_size
    resampling = _RESAMPLING[spec.interpolation]
    if max(new_width, new_height) <= _WHOLE_RATIO * spec.resize_size:
        return _centre(picture.resize((new_width, new_height), resampling), spec.size, spec.fill)
    left, top = _crop_offset(new_width, spec.size), _crop_offset(new_height, spec.size)
    box = (
        left * width / new_width,
        top * height / new_height,
        (left + spec.size) * width / new_width,
        (top + spec.size) * height / new_height,
    )
    return picture.resize((spec.size, spec.size), resampling, box=box)


def _centre(picture: Image.Image, size: int, fill: int) -> Image.Image:
    """Crops each side to `size`, or pads it with `fill`, around the centre."""
    if picture.size == (size, size):
        return picture
    width, height = picture.size
    if width < size or height < size:
        padded = Image.new("RGB", (max(width, size), max(height, size)), (fill, fill, fill))
        padded.paste(picture, (max(0, (size - width) // 2), max(0, (size - height) // 2)))
        return _centre(padded, size, fill)
    left, top = _crop_offset(width, size), _crop_offset(height, size)
    return picture.crop((left, top, left + size, top + size))


def _crop_offset(side: int, size: int) -> int:
    # torchvision's CenterCrop: Python's round, so halves go to the even neighbour.
    return round((side - size) / 2.0)


def normalise(picture: Image.Image, spec: PreprocessSpec) -> NDArray[np.float32]:
    """(rgb / 255 - mean) / std as one multiplication and one addition a channel, within 1e-6 of doing it in steps.

    Channels are taken apart by Pillow: NumPy is several times slower where neighbours lie three bytes apart.
    """
    pixels = np.empty((3, picture.height, picture.width), dtype=np.float32)
    for plane, band, mean, std in zip(pixels, picture.split(), spec.mean, spec.std, strict=True):
        np.multiply(np.asarray(band), np.float32(1 / (255 * std)), out=plane)
        np.subtract(plane, np.float32(mean / std), out=plane)
    return pixels
