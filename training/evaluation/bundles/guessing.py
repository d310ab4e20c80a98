"""What guessing finds: the share of searches that succeed where the order is drawn at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def found_by_guessing(right: NDArray[np.integer], of: int, k: int) -> float:
    """Share of queries with a right answer among the first k of an order drawn at random.

    A query with r right answers among n misses all with probability ∏ (n - k - i) / (n - i), i from 0 to r - 1.

    Args:
        right: How many right answers each query has, at least 1.
        of: n, how many there are to choose from.
        k: From 1 on.
    """
    counts, queries = np.unique(right, return_counts=True)
    missed = []
    for count in counts.tolist():
        i = np.arange(count)
        missed.append(np.prod(np.clip(of - k - i, 0, None) / (of - i)))
    return 1.0 - float(np.average(missed, weights=queries))
