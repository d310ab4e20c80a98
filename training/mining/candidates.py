"""Stage 1: what is near each anchor's caption in the live index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from twinlens.client.types import Item, Modality, Part, QueryInput, QueryResult
from twinlens.training.mining.manifest import Kind, MiningError

QUERIES_A_CALL = 256
# The most hits a query may ask for, and how fast a search that met nothing but near-duplicates grows towards it.
MOST_HITS = 1000
_GROWTH = 4


class Searchable(Protocol):
    """The part of `twinlens.client.Client` that mining needs."""

    def search_batch(
        self, collection: str, queries: Sequence[QueryInput], *, modality: Modality = "image", top_k: int = 10
    ) -> list[QueryResult]:
        """Answers several queries, in order."""
        ...

    def list_items(self, collection: str) -> Iterator[Item]:
        """Iterates over all items."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An item near an anchor; `score` is its cosine to the anchor's caption (or picture)."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """The neighbours of one anchor, nearest first, the anchor itself among them where it was near enough.

    Attributes:
        anchor: The item's id.
        kind: "text": compared by caption; "image": by picture. The query is the anchor's caption in both.
    """

    anchor: str
    kind: Kind
    neighbours: tuple[Neighbour, ...]


def near_captions(
    client: Searchable, collection: str, anchors: Mapping[str, str], kind: Kind, *, top_k: int
) -> Iterator[Candidates]:
    """Searches with each anchor's caption.

    Args:
        client: Of the server that holds the collection.
        collection: Its id.
        anchors: Item id to caption.
        kind: Whether neighbours are found by caption or by picture.
        top_k: How many for each.

    Raises:
        MiningError: if the server cannot answer a query.
    """
    ids = list(anchors)
    for start in range(0, len(ids), QUERIES_A_CALL):
        some = ids[start : start + QUERIES_A_CALL]
        results = client.search_batch(collection, [anchors[one] for one in some], modality=kind, top_k=top_k)
        for anchor, result in zip(some, results, strict=True):
            yield Candidates(anchor, kind, _neighbours(anchor, result))


def near_pictures(
    client: Searchable, collection: str, anchors: Sequence[str], *, min_score: float, top_k: int
) -> dict[str, frozenset[str]]:
    """For each anchor, the items whose pictures are at least `min_score` alike: near-duplicates.

    Where all that was found is alike, more is looked for, up to 1,000. An anchor without a picture has none.

    Raises:
        MiningError: if the server cannot answer a query.
    """
    alike: dict[str, frozenset[str]] = {}
    waiting = list(anchors)
    while waiting:
        crowded = []
        for start in range(0, len(waiting), QUERIES_A_CALL):
            some = waiting[start : start + QUERIES_A_CALL]
            queries: list[QueryInput] = [Part(item=one, item_modality="image") for one in some]
            for anchor, result in zip(some, client.search_batch(collection, queries, top_k=top_k), strict=True):
                without_picture = result.error is not None and result.error.reason == "NOT_FOUND"
                found = () if without_picture else _neighbours(anchor, result)
                near = frozenset(n.id for n in found if n.score >= min_score)
                alike[anchor] = near - {anchor}
                if len(near) == top_k < MOST_HITS:
                    crowded.append(anchor)
        waiting, top_k = crowded, min(MOST_HITS, _GROWTH * top_k)
    return alike


def _neighbours(anchor: str, result: QueryResult) -> tuple[Neighbour, ...]:
    if result.error is not None:
        raise MiningError(f"the server could not search for {anchor!r}: {result.error}")
    return tuple(Neighbour(hit.id, hit.score) for hit in result.hits)
