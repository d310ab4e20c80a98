"""What the values of EXIF's orientation mean, and the tag itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

# EXIF 2.3, table 6, as NumPy sees it: from the stored pixels to the upright ones.
UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


def exif(orientation: object) -> bytes:
    """An EXIF block that says nothing but how the picture lies; any value will do, also an impossible one."""
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()
