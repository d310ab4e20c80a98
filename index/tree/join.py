"""One list of hits out of two."""

from __future__ import annotations

import numpy as np

from twinlens.index.protocol import Keys, Vectors

Found = tuple[Vectors, Keys]
"""Scores and keys, both (q, found)."""


def join(merged: Found, fresh: Found, top_k: int) -> Found:
    """The best of both, best first, ties by lower key; of a key found in both only what is fresh counts.

    Args:
        merged: Found first.
        fresh: Found after, for the same queries.
        top_k: How many at most.
    """
    scores = np.concatenate([merged[0], fresh[0]], axis=1)
    keys = np.concatenate([merged[1], fresh[1]], axis=1)
    found = keys.shape[1]
    if overlap(merged, fresh):
        # What is stale comes last and is cut off: all queries have as many hits left, or at least `top_k`.
        stale = np.array([np.isin(old, new) for old, new in zip(merged[1], fresh[1], strict=True)])
        scores[:, : stale.shape[1]][stale] = -np.inf
        found -= int(stale.sum(axis=1).max())
    order = np.lexsort((keys, -scores), axis=-1)[:, : min(top_k, found)]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(keys, order, axis=1)


def overlap(merged: Found, fresh: Found) -> bool:
    """Whether a query found a key in both: its item was changed between the two searches."""
    if not merged[1].shape[1] or not fresh[1].shape[1]:
        return False
    ascending = np.sort(np.concatenate([merged[1], fresh[1]], axis=1), axis=1)
    return bool((ascending[:, 1:] == ascending[:, :-1]).any())
