"""When vectors are merged. All numbers that decide it are here.

A merge builds the whole index anew. One that starts when a quarter of the index is pending costs, over the life of a
growing collection, at most five times what building it once would: the work for n vectors stays that of n log n.
Searches compare with every pending vector, so smaller remains are merged too, but seldom enough that merging takes no
more than a twentieth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.index.kinds.kind import Kind

LARGE_SHARE = 0.25
"""Pending or hidden vectors per merged one from which a merge does not wait."""

REST_FACTOR = 20.0
"""A merge of smaller remains waits this many times as long as the one before took."""

LOG_FACTOR = 4
"""Changes per merged vector from which a merge does not wait, however few vectors they concern: their log is kept."""

LEAST_LOGGED = 65536
"""Fewer changes than this never count as many."""

FIRST_RETRY_S = 5.0
LAST_RETRY_S = 600.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a decision is made from.

    Attributes:
        merged: Merged vectors, hidden ones included.
        pending: Vectors written since.
        hidden: Merged vectors replaced or deleted since.
        entries: Changes since.
        kind: What lies over the merged vectors.
    """

    merged: int
    pending: int
    hidden: int
    entries: int
    kind: Kind = Kind.FLAT


def wait_s(
    numbers: Numbers, least_merged: int, *, since_s: float, took_s: float, outgrown: bool = False
) -> float | None:
    """How long to wait until the next merge.

    Args:
        numbers: Of the tree.
        least_merged: `IndexOptions.least_merged`.
        since_s: How long ago the last merge ended.
        took_s: How long that one took.
        outgrown: The merged vectors should have another kind by now.

    Returns:
        Seconds, 0 for at once; None while there is nothing to merge.
    """
    changed = numbers.pending + numbers.hidden
    if not numbers.merged:
        return 0.0 if numbers.pending >= max(1, least_merged) else None
    if changed >= LARGE_SHARE * numbers.merged and changed >= min(least_merged, numbers.merged):
        return 0.0
    if numbers.entries >= max(LEAST_LOGGED, LOG_FACTOR * numbers.merged):
        return 0.0
    if changed >= least_merged or outgrown:
        return max(0.0, REST_FACTOR * took_s - since_s)
    return None


def retry_s(failures: int) -> float:
    """How long to wait after that many failures in a row, from 1."""
    return float(min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** min(failures - 1, 16)))
