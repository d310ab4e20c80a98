"""Pictures that are drawn, for measurements that no disk and no licence should have a part in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def drawn_photos(count: int, side: int) -> NDArray[np.uint8]:
    """Smooth pictures, (n, side, side, 3)."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return np.stack([np.asarray(Image.fromarray(each).resize((side, side))) for each in coarse])
