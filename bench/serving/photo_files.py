"""Draws JPEG files that cost what photos cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

PHOTO = ((640, 480),)
# Of the soak: from thumbnails to a screen full.
MANY_SIZES = ((64, 64), (100, 400), (320, 240), (640, 480), (800, 600), (1280, 720), (1920, 1080))
_QUALITY = 87
_GRAIN = 5.0


def write_photos(folder: Path, count: int, sizes: tuple[tuple[int, int], ...] = PHOTO, seed: int = 0) -> None:
    """Writes `count` pictures, about 70 kB at 640x480, that take a decoder as long as a photo of that size does.

    Smooth colours alone would compress to a tenth of a photo; grain at two scales makes up for that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for number in range(count):
        width, height = sizes[number % len(sizes)]
        coarse = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        blocks = rng.normal(0, _GRAIN, (-(-height // 4), -(-width // 4), 1))
        grain = blocks.repeat(4, axis=0).repeat(4, axis=1)[:height, :width] + rng.normal(0, _GRAIN, (height, width, 1))
        pixels = np.asarray(smooth, dtype=np.float32) + grain.astype(np.float32)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:05d}.jpg", quality=_QUALITY)
