"""How much of the exact answer was found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def recall_at_k(found: Sequence[Sequence[int]], nearest: NDArray[np.int64]) -> float:
    """The share of the exact best, rows of shape (q, k), that was found; 1.0 where there was nothing to find."""
    wanted = nearest.size
    right = sum(len(set(rows) & set(best)) for rows, best in zip(found, nearest.tolist(), strict=True))
    return right / wanted if wanted else 1.0
