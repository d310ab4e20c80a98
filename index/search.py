"""From an engine's keys to hits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from twinlens.index.item import Hit, Item
from twinlens.index.protocol import Keys, VectorIndex, Vectors


def live_hits(
    engine: VectorIndex,
    queries: Vectors,
    top_k: int,
    fetch: Callable[[Iterable[int]], Mapping[int, Item]],
    *,
    min_score: float | None = None,
    exact: bool = False,
    among: Keys | None = None,
) -> list[list[Hit]]:
    """Searches and looks the items up; asks for more where an item was deleted, or matches no more, in between.

    Args:
        engine: What finds keys.
        queries: Unit vectors, shape (q, d).
        top_k: How many hits at most, from 1.
        fetch: The items of those keys that exist, in one query. Asked for none below `min_score`.
        min_score: Leave out hits below this cosine.
        exact: Passed on to the engine.
        among: Passed on to the engine.

    Returns:
        Per query the hits, best first: `top_k` of them while there are as many.
    """
    wanted = top_k
    while True:
        scores, keys = engine.search(queries, wanted, exact=exact, among=among)
        hits, lacking = look_up(scores, keys, wanted, top_k, fetch, min_score)
        if not lacking:
            return hits
        wanted += lacking


def look_up(
    scores: Vectors,
    keys: Keys,
    wanted: int,
    top_k: int,
    fetch: Callable[[Iterable[int]], Mapping[int, Item]],
    min_score: float | None,
) -> tuple[list[list[Hit]], int]:
    """Makes hits of what an engine found.

    Args:
        scores: As the engine gave them, shape (q, found).
        keys: The same.
        wanted: How many it was asked for, from `top_k`.
        top_k: How many hits at most.
        fetch: See `live_hits`.
        min_score: Leave out hits below this cosine.

    Returns:
        Per query the hits, best first. And 0 where these are all there can be; else how many of the keys have no item,
        for which the engine may have others.
    """
    least = -np.inf if min_score is None else min_score
    near = scores.astype(np.float64) >= least  # as it was given, not rounded to the scores' 32 bits
    distinct = set(keys[near].tolist())
    items = fetch(distinct)
    hits = [
        [
            Hit(items[key], score)
            for key, score in zip(of_keys, of_scores, strict=True)
            if score >= least and key in items
        ][:top_k]
        for of_keys, of_scores in zip(keys.tolist(), scores.tolist(), strict=True)
    ]
    complete = keys.shape[1] < wanted or all(
        len(of_query) == top_k or not last for of_query, last in zip(hits, near[:, -1], strict=True)
    )
    return hits, 0 if complete else len(distinct) - len(items)
