"""Hits of a search beside which items are replaced."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping

from twinlens.index.errors import InvalidArgument
from twinlens.index.item import Hit, Item
from twinlens.index.milvus.filtering import Fetch
from twinlens.index.milvus.state import MilvusState

_ATTEMPTS = 10
_REPLACED_S = 30.0  # longer than a search takes, with room for servers' clocks that differ
_WRITING_S = 300.0  # longer than a write takes: what has no item for so long will never have one
_REMEMBERED = 100_000


def settled_hits(state: MilvusState, attempt: Callable[[Fetch], list[list[Hit]]]) -> list[list[Hit]]:
    """Searches, and once more where the item of a vector is not there.

    Between the search for vectors and the look at their items, an item may be replaced: its vector then lies under
    another key, which that search was too early for. Replaced once, it is known by the key that it had before, and is a
    hit all the same, as the vector that was searched was its own. Replaced more often, the next search finds it.

    Vectors of a write under way belong to no item yet, and those that a crash left never will. If a second search finds
    no others of this kind, that is what they are.

    Args:
        state: The open collection.
        attempt: Searches, given what fetches items by key.

    Returns:
        Per query the hits, best first; equal scores in the order in which items were first stored. (Keys are random, so
        that servers need not agree on them: their order means nothing to a caller.)
    """
    hits: list[list[Hit]] = []
    now_s = time.monotonic()
    seen = {key for key, first_s in [*state.lost.items()] if now_s - first_s > _WRITING_S}
    for _ in range(_ATTEMPTS):
        lost: set[int] = set()

        def fetch(keys: Iterable[int], lost: set[int] = lost) -> Mapping[int, Item]:
            found, superseded = _items(state, set(keys))
            lost |= set(keys) - found.keys() - superseded
            return found

        hits = attempt(fetch)
        if lost <= seen:
            break
        seen |= lost
    if len(state.lost) > _REMEMBERED:
        state.lost.clear()
    for key in seen:
        state.lost.setdefault(key, now_s)
    return [sorted(of_query, key=lambda hit: (-hit.score, hit.item.created_s, hit.item.id)) for of_query in hits]


def _items(state: MilvusState, keys: set[int]) -> tuple[dict[int, Item], set[int]]:
    """Items by the key under which their vector was found, and keys that others took the place of."""
    found: dict[int, Item] = {}
    superseded: set[int] = set()
    for stored in state.items.by_key(keys, or_previous=True):
        if stored.key in keys:
            found[stored.key] = stored.item
            superseded.add(stored.previous)
        elif time.time() - stored.item.updated_s < _REPLACED_S:
            found[stored.previous] = stored.item
    return found, superseded


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
