"""Mines hard negatives from a live index: candidates, guards, sampling, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinlens.client.types import Item
from twinlens.training.data.caption_key import caption_key
from twinlens.training.mining.candidates import Searchable, near_captions, near_pictures
from twinlens.training.mining.filters import Equals, Guards, apply
from twinlens.training.mining.manifest import KINDS, Kind, MinedNegatives, MiningError
from twinlens.training.mining.sampling import Strategy, sample


@dataclass(frozen=True)
class MineOptions:
    """What to look for.

    Attributes:
        kinds: Wrong captions ("text"), wrong pictures ("image"), or both.
        top_k: Candidates for each anchor and kind.
        per_anchor: Negatives taken for each anchor and kind, at most.
        guards: See `Guards`.
        near_duplicate: Items whose pictures have at least this cosine are equals; None: only the same bytes are.
        group_key: Items with the same value under this key of their metadata are positives of each other.
        strategy: How `per_anchor` are chosen among the survivors.
        seed: Of the sampling.
    """

    kinds: tuple[Kind, ...] = KINDS
    top_k: int = 50
    per_anchor: int = 5
    guards: Guards = field(default_factory=Guards)
    near_duplicate: float | None = 0.99
    group_key: str | None = None
    strategy: Strategy = "nearest"
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the counts.

        Raises:
            ValueError: if a count is below 1 or no kind is named.
        """
        if self.top_k < 1 or self.per_anchor < 1 or not self.kinds:
            raise ValueError("top_k and per_anchor must be at least 1, and at least one kind named")


@dataclass
class KindReport:
    """Counts of one kind; candidates = sum of dropped + left + taken.

    Attributes:
        anchors: Captions searched with.
        candidates: What the index found for them.
        dropped: Reason to how many were no negatives for it.
        left: Would have done, but `per_anchor` were found already.
        taken: Rows of the manifest.
        short: Anchor to how many it got, where that is fewer than `per_anchor`.
    """

    anchors: int = 0
    candidates: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    left: int = 0
    taken: int = 0
    short: dict[str, int] = field(default_factory=dict)

    def adds_up(self) -> bool:
        """Whether every candidate is accounted for."""
        return self.candidates == sum(self.dropped.values()) + self.left + self.taken


@dataclass
class MiningReport:
    """What was mined.

    Attributes:
        items: In the collection.
        without_caption: Items that could not be anchors.
        kinds: Counts by kind.
    """

    items: int
    without_caption: int
    kinds: dict[Kind, KindReport]

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        kinds = {kind: {**vars(counts), "dropped": dict(counts.dropped)} for kind, counts in self.kinds.items()}
        return {"items": self.items, "without_caption": self.without_caption, "kinds": kinds}


def mine(
    client: Searchable,
    collection: str,
    space_id: str,
    options: MineOptions,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[MinedNegatives, MiningReport]:
    """Searches with every caption of the collection and keeps what is near but wrong.

    Args:
        client: Of the server that holds the collection.
        collection: Its id; its items carry captions, and their ids are those of the training data.
        space_id: Of the collection; written to the manifest.
        options: What to look for.
        progress: Called with how many searches are done and to do.

    Raises:
        MiningError: if fewer than two items have captions, or a search fails.
    """
    items = list(client.list_items(collection))
    anchors = {item.id: item.caption for item in items if item.caption.strip()}
    if len(anchors) < 2:
        raise MiningError(
            f"{collection} has {len(anchors)} item(s) with a caption; mining compares captions, so it needs at least 2"
        )
    equals = _equals(client, collection, items, list(anchors), options)
    rng = np.random.default_rng(options.seed)
    report = MiningReport(len(items), len(items) - len(anchors), {kind: KindReport() for kind in options.kinds})
    rows: list[tuple[str, str, Kind, float, float, int, str]] = []
    done, of = 0, len(anchors) * len(options.kinds)
    for kind in options.kinds:
        counts = report.kinds[kind]
        for candidates in near_captions(client, collection, anchors, kind, top_k=options.top_k):
            filtered = apply(candidates, equals, options.guards)
            taken = sample(filtered.survivors, options.per_anchor, options.strategy, rng)
            for survivor in taken:
                near, rank = survivor.neighbour, survivor.rank
                reason = f"{'caption' if kind == 'text' else 'picture'} of rank {rank} for the anchor's caption"
                rows.append((filtered.anchor, near.id, kind, near.score, filtered.positive_score, rank, reason))
            counts.anchors += 1
            counts.candidates += len(candidates.neighbours)
            counts.dropped += filtered.dropped
            counts.left += len(filtered.survivors) - len(taken)
            counts.taken += len(taken)
            if len(taken) < options.per_anchor:
                counts.short[filtered.anchor] = len(taken)
            done += 1
            if progress is not None:
                progress(done, of)
    return _manifest(rows, space_id, collection), report


def _equals(
    client: Searchable, collection: str, items: Sequence[Item], anchors: Sequence[str], options: MineOptions
) -> Equals:
    alike: dict[str, frozenset[str]] = {}
    if options.near_duplicate is not None:
        alike = near_pictures(client, collection, anchors, min_score=options.near_duplicate, top_k=options.top_k)
    groups = {}
    if options.group_key is not None:
        groups = {i.id: str(i.metadata[options.group_key]) for i in items if options.group_key in i.metadata}
        if not groups:
            raise MiningError(f"no item of {collection} has {options.group_key!r} in its metadata")
    return Equals(
        caption_of={item.id: caption_key(item.caption) for item in items},
        picture_of={item.id: item.content_hash for item in items},
        group_of=groups,
        alike=alike,
    )


def _manifest(
    rows: Sequence[tuple[str, str, Kind, float, float, int, str]], space_id: str, collection: str
) -> MinedNegatives:
    anchors, negatives, kinds, scores, positives, ranks, reasons = zip(*rows, strict=True) if rows else ((),) * 7
    return MinedNegatives(anchors, negatives, kinds, scores, positives, ranks, reasons, space_id, collection)
