"""Stage 2: guards against false negatives, each with a name of its own.

The names and meanings of margins and window follow sentence-transformers' `mine_hard_negatives`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from twinlens.training.data.caption_key import contains
from twinlens.training.mining.candidates import Candidates, Neighbour


@dataclass(frozen=True)
class Guards:
    """When a candidate is not taken; None switches a guard off.

    Attributes:
        rank_min: Skip so many of the nearest candidates that are not positives.
        rank_max: Take none behind this rank.
        min_score: Take none that scores lower: too easy.
        max_score: Take none that scores higher: too likely right.
        margin: A negative must score at least this much below the anchor's own (may be below 0).
        relative_margin: A negative must score below the anchor's own by at least this share of it.
    """

    rank_min: int = 0
    rank_max: int | None = None
    min_score: float | None = None
    max_score: float | None = None
    margin: float | None = 0.0
    relative_margin: float | None = None

    def __post_init__(self) -> None:
        """Checks the bounds.

        Raises:
            ValueError: naming what is out of bounds.
        """
        if self.rank_min < 0 or (self.rank_max is not None and self.rank_max <= self.rank_min):
            raise ValueError("the rank window must be 0 <= rank_min < rank_max")
        if self.relative_margin is not None and not 0 <= self.relative_margin < 1:
            raise ValueError("relative_margin must be at least 0 and below 1")
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise ValueError("min_score is above max_score")


@dataclass(frozen=True)
class Equals:
    """What is as right as the anchor itself.

    Attributes:
        caption_of: Item to a key of its caption; equal keys say the same, an empty one says nothing.
        picture_of: Item to the digest of its picture.
        group_of: Item to a group whose members are positives of each other; may be empty.
        alike: Anchor to items with nearly the same picture.
    """

    caption_of: Mapping[str, str]
    picture_of: Mapping[str, str]
    group_of: Mapping[str, str]
    alike: Mapping[str, frozenset[str]]

    def why(self, anchor: str, other: str) -> str | None:
        """Why `other` must not be a negative of `anchor`; None if it may. Both ways round the answer is the same."""
        if anchor == other:
            return "itself"
        for keys, reason in (
            (self.picture_of, "same picture"),
            (self.caption_of, "same caption"),
            (self.group_of, "same group"),
        ):
            if anchor in keys and keys.get(other) == keys[anchor]:
                return reason
        if self._belong(anchor, other) or self._belong(other, anchor):
            return "caption of the same picture"
        ours, theirs = self.caption_of.get(anchor, ""), self.caption_of.get(other, "")
        if contains(ours, theirs) or contains(theirs, ours):
            return "caption within the other"
        return "near-duplicate picture" if other in self.alike.get(anchor, frozenset()) else None

    def _belong(self, one: str, other: str) -> bool:
        """Whether some third item has the picture of the one and the caption of the other."""
        return (self.picture_of.get(one), self.caption_of.get(other)) in self._pairs

    @cached_property
    def _pairs(self) -> frozenset[tuple[str | None, str | None]]:
        return frozenset((self.picture_of.get(one), caption) for one, caption in self.caption_of.items() if caption)


@dataclass(frozen=True, slots=True)
class Survivor:
    """A neighbour that passed; `rank` counts from 1 among candidates that are no positives."""

    neighbour: Neighbour
    rank: int


@dataclass(frozen=True)
class Filtered:
    """What is left of one anchor's candidates, and why the others went; the counts add up to the candidates."""

    anchor: str
    positive_score: float
    survivors: tuple[Survivor, ...]
    dropped: Counter[str]


def apply(candidates: Candidates, equals: Equals, guards: Guards) -> Filtered:
    """Runs every guard over one anchor's candidates, nearest first."""
    positive = positive_score(candidates)
    dropped: Counter[str] = Counter()
    survivors = []
    rank = 0
    for neighbour in candidates.neighbours:
        reason = equals.why(candidates.anchor, neighbour.id)
        if reason is None:
            rank += 1
            reason = _guarded(neighbour.score, rank, positive, guards)
        if reason is None:
            survivors.append(Survivor(neighbour, rank))
        else:
            dropped[reason] += 1
    return Filtered(candidates.anchor, positive, tuple(survivors), dropped)


def positive_score(candidates: Candidates) -> float:
    """What the anchor scores for its own caption.

    Where its own picture is not among the candidates it scores less than all of them; the lowest is then the closest
    bound we know.
    """
    own = next((n.score for n in candidates.neighbours if n.id == candidates.anchor), None)
    if own is not None:
        return own
    if candidates.kind == "text":
        return 1.0
    return min((n.score for n in candidates.neighbours), default=float("-inf"))


def _guarded(score: float, rank: int, positive: float, guards: Guards) -> str | None:
    if rank <= guards.rank_min:
        return "before the rank window"
    if guards.rank_max is not None and rank > guards.rank_max:
        return "behind the rank window"
    if guards.max_score is not None and score > guards.max_score:
        return "above max_score"
    if guards.min_score is not None and score < guards.min_score:
        return "below min_score"
    if guards.margin is not None and score > positive - guards.margin:
        return "within the margin"
    if guards.relative_margin is not None and score > positive - abs(positive) * guards.relative_margin:
        return "within the relative margin"
    return None
