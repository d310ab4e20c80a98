"""Length buckets: texts padded together should be of similar length, for every row costs as much as the longest."""

from __future__ import annotations

from collections.abc import Sequence

# Within a bucket the longest text has at most twice the ids of the shortest and a few more: below that, one larger
# run is cheaper than two.
_RATIO = 2
_SLACK = 8


def length_buckets(lengths: Sequence[int]) -> list[slice]:
    """Cuts a batch, sorted by length, into runs of similar lengths.

    Args:
        lengths: In ascending order.

    Returns:
        Slices that cover all of them, in order.
    """
    cuts = [0]
    for i, length in enumerate(lengths):
        if length > _RATIO * lengths[cuts[-1]] + _SLACK:
            cuts.append(i)
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], len(lengths)], strict=True)]
