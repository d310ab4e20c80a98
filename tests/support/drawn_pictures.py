"""Folders of small drawn pictures in classes that a network can tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

_TINTS = {"amber": (220, 160, 40), "jade": (30, 170, 110), "plum": (140, 40, 130), "slate": (90, 110, 140)}


def write_classes(folder: Path, per_class: int, *, side: int = 32, classes: int = 4, seed: int = 0) -> Path:
    """A folder per class; pictures of a class share a tint and a direction of stripes, and differ in all else."""
    chance = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:side, 0:side]
    for kind, (name, tint) in enumerate(list(_TINTS.items())[:classes]):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            turn = kind * np.pi / classes + chance.normal(0, 0.1)
            along = rows * np.sin(turn) + columns * np.cos(turn)
            waves = np.sin(along * chance.uniform(0.4, 0.9) + chance.uniform(0, 6.3))
            pixels = np.array(tint) + 50 * waves[..., None] + chance.normal(0, 12, (side, side, 3))
            picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            picture.save(folder / name / f"{number:03d}.png")
    return folder
