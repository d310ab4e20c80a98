"""Which vectors stand for all of them where looking at all would take too long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SEED = 0


def sample_rows(count: int, most: int) -> NDArray[np.int64]:
    """Rows drawn at random, always the same of the same count; all where there are no more than `most`.

    Returns:
        Ascending, shape (min(count, most),).
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(_SEED).choice(count, most, replace=False)).astype(np.int64)
