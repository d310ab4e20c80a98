from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import encode, scene
from tests.support.reference_transform import MEAN, STD, Interpolation, Mode, open_clip_tensor, spec
from twinlens.encoders.decode import decode_image
from twinlens.encoders.preprocess import load_pixels, preprocess


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def one_level(std: tuple[float, float, float] = STD) -> float:
    return 1.001 / 255 / min(std)


@pytest.mark.parametrize(
    ("height", "width"),
    [(32, 32), (33, 32), (32, 47), (48, 64), (101, 57), (57, 101), (7, 9), (1, 1), (40, 160), (64, 500), (480, 31)],
)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_agrees_with_open_clip_within_one_level(
    mode: Mode, interpolation: Interpolation, height: int, width: int
) -> None:
    pixels, wanted = noise(height, width), spec(mode, interpolation, fill=117)
    found = preprocess(pixels, wanted)
    assert found.shape == (3, 32, 32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, open_clip_tensor(pixels, wanted), atol=one_level())


@pytest.mark.parametrize(("height", "width"), [(600, 20), (20, 599), (1, 3000), (413, 3), (2000, 11), (60, 1900)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_thin_pictures_agree_too_although_only_the_crop_is_computed(
    interpolation: Interpolation, height: int, width: int
) -> None:
    pixels, wanted = scene(height, width), spec("shortest", interpolation)
    np.testing.assert_allclose(preprocess(pixels, wanted), open_clip_tensor(pixels, wanted), atol=2 * one_level())


@pytest.mark.parametrize(("height", "width"), [(600, 20), (20, 599), (413, 3)])
def test_thin_noise_agrees_but_for_where_the_passes_clip(height: int, width: int) -> None:
    pixels, wanted = noise(height, width), spec()
    off = np.abs(preprocess(pixels, wanted) - open_clip_tensor(pixels, wanted))
    assert off.mean() < 0.5 * one_level()


def test_resize_beyond_the_crop_agrees_with_torchvision() -> None:
    from torchvision import transforms
    from torchvision.transforms import InterpolationMode

    pixels, wanted = noise(120, 90), spec(size=28, resize=32)
    steps = [
        transforms.Resize(32, interpolation=InterpolationMode.BICUBIC),
        transforms.CenterCrop(28),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    np.testing.assert_allclose(
        preprocess(pixels, wanted), transforms.Compose(steps)(Image.fromarray(pixels)).numpy(), atol=one_level()
    )


def test_a_huge_thin_picture_builds_no_giant_intermediate() -> None:
    pixels = noise(20000, 1)
    wanted = spec(size=224)
    tracemalloc.start()
    found = preprocess(pixels, wanted)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.shape == (3, 224, 224)
    assert peak < 20e6
    # 224 rows of 4,480,000: the crop shows the one or two pixels in the middle.
    levels = found.mean(axis=(1, 2)) * np.array(STD) + np.array(MEAN)
    np.testing.assert_allclose(levels, pixels[9999:10001].mean(axis=(0, 1)) / 255, atol=0.1)


def test_a_one_pixel_checkerboard_becomes_mid_grey() -> None:
    board = (np.indices((512, 512)).sum(axis=0) % 2 * 255).astype(np.uint8)
    pixels = np.repeat(board[..., None], 3, axis=2)
    levels = preprocess(pixels, spec())[0] * STD[0] + MEAN[0]
    np.testing.assert_allclose(levels, 0.5, atol=0.02)


def test_padding_has_the_fill_colour() -> None:
    found = preprocess(np.full((10, 40, 3), 255, np.uint8), spec("longest", fill=51))
    levels = found * np.array(STD)[:, None, None] + np.array(MEAN)[:, None, None]
    np.testing.assert_allclose(levels[:, 0], 0.2, atol=1e-3)
    np.testing.assert_allclose(levels[:, 16], 1.0, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (0, 4, 3), (3, 4, 4)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        preprocess(np.zeros(shape, np.uint8), spec())


def test_load_pixels_is_decode_then_preprocess() -> None:
    data = encode(scene())
    np.testing.assert_array_equal(load_pixels(data, spec()), preprocess(decode_image(data), spec()))


def test_a_jpeg_decoded_at_reduced_scale_stays_close_to_the_whole() -> None:
    data = encode(scene(600, 800), "JPEG", quality=95)
    whole = preprocess(decode_image(data), spec())
    assert decode_image(data, min_side=32).shape[0] < 600
    assert np.abs(load_pixels(data, spec()) - whole).mean() * min(STD) < 1.5 / 255
