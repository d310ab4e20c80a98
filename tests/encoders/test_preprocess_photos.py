"""Preprocessing of real photos against open_clip's and timm's own evaluation transforms."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.support.reference_transform import MEAN, STD, Interpolation, Mode, open_clip_tensor, spec
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import preprocess

skimage_data: Any = pytest.importorskip("skimage.data")

# In units of the tensor. The pixels are the same; only the arithmetic of the normalisation is in another order.
EXACT = 1e-6

PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")
# Height and width of a piece of the photo: odd, portrait, landscape, one pixel beside the target, far smaller than it.
PIECES = ((299, 451), (300, 225), (200, 447), (224, 225), (31, 20), (120, 301))


@functools.cache
def photo(name: str) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = getattr(skimage_data, name)()
    return found


def piece(name: str, height: int, width: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(photo(name)[:height, -width:])


def off_open_clip(pixels: NDArray[np.uint8], wanted: PreprocessSpec) -> float:
    """The largest difference from open_clip's transform."""
    found = preprocess(pixels, wanted)
    assert found.shape == (3, wanted.size, wanted.size)
    assert found.dtype == np.float32
    return float(np.abs(found - open_clip_tensor(pixels, wanted)).max())


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_equals_open_clip_whatever_the_shape(mode: Mode, interpolation: Interpolation, name: str) -> None:
    wanted = spec(mode, interpolation, 224, fill=127)
    shapes = [photo(name).shape[:2], *PIECES]
    assert max(off_open_clip(piece(name, *shape), wanted) for shape in shapes) <= EXACT


@pytest.mark.parametrize("size", [196, 256, 336, 378, 384, 448])
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_equals_open_clip_in_every_size(mode: Mode, size: int) -> None:
    for name in ("coffee", "astronaut"):
        assert off_open_clip(photo(name), spec(mode, "bicubic", size)) <= EXACT


@pytest.mark.parametrize("fill", [0, 127, 255])
def test_what_is_padded_has_the_fill_colour_of_the_reference(fill: int) -> None:
    for shape in ((40, 41), (100, 399), (399, 100)):
        assert off_open_clip(piece("coffee", *shape), spec("longest", "bicubic", 97, fill=fill)) <= EXACT


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("crop", [0.8, 0.875, 0.9, 0.95, 0.96, 1.0])
def test_equals_timm_where_the_crop_is_smaller_than_the_resize(crop: float, interpolation: Interpolation) -> None:
    from timm.data.transforms_factory import create_transform

    size = 224
    reference: Any = create_transform(
        (3, size, size), interpolation=interpolation, mean=MEAN, std=STD, crop_pct=crop, crop_mode="center"
    )
    wanted = spec("shortest", interpolation, size, resize=math.floor(size / crop))
    for name in PHOTOS:
        for shape in (photo(name).shape[:2], (299, 451), (300, 225), (31, 20)):
            pixels = piece(name, *shape)
            found = preprocess(pixels, wanted)
            assert np.abs(found - reference(Image.fromarray(pixels)).numpy()).max() <= EXACT


def test_the_normalisation_is_that_of_the_formula_for_every_level() -> None:
    levels = np.arange(256, dtype=np.uint8)
    pixels = np.stack([levels, levels[::-1], np.roll(levels, 99)], axis=-1).reshape(16, 16, 3)
    found = preprocess(pixels, spec("squash", "bicubic", 16))
    wanted = (pixels.astype(np.float64) / 255 - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(found, wanted.transpose(2, 0, 1), atol=EXACT, rtol=0)
    assert found.flags.c_contiguous
