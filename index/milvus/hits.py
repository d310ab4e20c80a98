"""Hits of a search beside which items are replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from twinlens.index.errors import InvalidArgument
from twinlens.index.item import Hit, Item
from twinlens.index.milvus.filtering import Fetch
from twinlens.index.milvus.state import MilvusState

_ATTEMPTS = 10
_REMEMBERED = 100_000


def settled_hits(state: MilvusState, attempt: Callable[[Fetch], list[list[Hit]]]) -> list[list[Hit]]:
    """Searches, and once more where a vector's item is gone: it may have been replaced in between.

    A replaced item has another key, whose vector that search may have been too early for, and the next one finds.
    Vectors that a crash left without an item are remembered, and not searched for again.

    Args:
        state: The open collection.
        attempt: Searches, given what fetches items by key.

    Returns:
        Per query the hits, best first; equal scores in the order in which items were first stored. (Keys are random, so
        that servers need not agree on them: their order means nothing to a caller.)
    """
    hits: list[list[Hit]] = []
    for _ in range(_ATTEMPTS):
        gone: set[int] = set()

        def fetch(keys: Iterable[int], gone: set[int] = gone) -> Mapping[int, Item]:
            wanted = set(keys)
            found = state.by_key(wanted)
            gone |= wanted - found.keys()
            return found

        hits = attempt(fetch)
        if gone <= state.lost:
            break
        if len(state.lost) > _REMEMBERED:
            state.lost.clear()
        state.lost |= gone
    return [sorted(of_query, key=lambda hit: (-hit.score, hit.item.created_s, hit.item.id)) for of_query in hits]


def refuse_long(items: Iterable[Item], most: int) -> None:
    """Refuses items whose texts and metadata are too long together.

    Raises:
        InvalidArgument: they have more than `most` characters.
    """
    characters = 0
    for item in {item.id: item for item in items}.values():
        metadata = json.dumps(dict(item.metadata), ensure_ascii=False, separators=(",", ":"))
        characters += len(item.id) + len(item.uri) + len(item.caption) + len(metadata)
        if characters > most:
            raise InvalidArgument(f"the items found have more than {most} characters; ask for fewer")
