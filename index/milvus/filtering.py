"""Filters on a collection in Milvus, decided here: its expressions know neither our text nor our time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from twinlens.index.filters.ast import Filter
from twinlens.index.filters.evaluate import matches
from twinlens.index.filters.parse import parse
from twinlens.index.item import Hit, Item
from twinlens.index.milvus.items import StoredItem
from twinlens.index.milvus.state import MilvusState
from twinlens.index.milvus.vector_index import MilvusIndex
from twinlens.index.protocol import Vectors
from twinlens.index.search import live_hits, look_up

Fetch = Callable[[Iterable[int]], Mapping[int, Item]]
"""The items of those keys that exist."""

_WIDER = 8


def condition(text: str) -> Filter | None:
    """The filter meant; None where it is blank.

    Raises:
        InvalidFilter: it cannot be read.
    """
    return parse(text) if text.strip() else None


def matching(state: MilvusState, node: Filter | None, after: str = "") -> Iterator[StoredItem]:
    """The items that match, in the order of their ids, from the one behind `after`."""
    for page in state.items.all(after):
        for stored in page:
            if node is None or matches(node, stored.item):
                yield stored


def filtered_hits(
    state: MilvusState,
    fetch: Fetch,
    index: MilvusIndex,
    queries: Vectors,
    top_k: int,
    node: Filter,
    *,
    min_score: float | None,
    exact: bool,
) -> list[list[Hit]]:
    """As `live_hits`, of those items that match.

    While the filter lets many through, it is enough to look at more of the nearest. Otherwise all items are read for
    their keys, and the vectors of those that match are compared one by one.
    """

    def fetch_matching(keys: Iterable[int]) -> dict[int, Item]:
        return {key: item for key, item in fetch(keys).items() if matches(node, item)}

    # Once only: far down a list of the nearest, an approximate search misses more than it may.
    wanted = top_k * _WIDER
    scores, keys = index.search(queries, wanted, exact=exact)
    hits, lacking = look_up(scores, keys, wanted, top_k, fetch_matching, min_score)
    if not lacking:
        return hits
    among = np.array(sorted(stored.key for stored in matching(state, node)), dtype=np.int64)
    return live_hits(index, queries, top_k, fetch_matching, min_score=min_score, exact=True, among=among)
