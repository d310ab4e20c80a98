"""The shapes of batches: texts of like length together, and few shapes for runtimes that keep code for each.

OpenVINO compiles code for every shape it meets and keeps it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache

# Within a bucket the longest text has at most twice the ids of the shortest and a few more: below that, one larger
# run is cheaper than two.
_RATIO = 2
_SLACK = 8

# Texts are padded up to one of these lengths: shorter steps where texts are short, for most are. Steps of 4 up to 24
# make queries of 9 to 19 ids a fifth cheaper than steps of 8.
_LENGTHS = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def length_buckets(lengths: Sequence[int], most: int) -> list[slice]:
    """Cuts a batch, sorted by length, into runs of similar lengths, for every row costs as much as the longest.

    Args:
        lengths: In ascending order.
        most: Rows of a run.

    Returns:
        Slices that cover all of them, in order.
    """
    cuts = [0]
    for i, length in enumerate(lengths):
        if length > _RATIO * lengths[cuts[-1]] + _SLACK or i - cuts[-1] == most:
            cuts.append(i)
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], len(lengths)], strict=True) if a < b]


def batch_parts(count: int) -> Iterator[slice]:
    """Cuts a batch into powers of two, largest first: no row is computed for nothing, as padding would.

    Args:
        count: Rows of the batch.
    """
    start = 0
    while start < count:
        size = 1 << ((count - start).bit_length() - 1)
        yield slice(start, start + size)
        start += size


def bucketed_length(length: int, most: int) -> int:
    """The length a batch of texts is padded to.

    Args:
        length: Of its longest text.
        most: The window of the tower; never exceeded.
    """
    return min(next((step for step in _LENGTHS if step >= length), most), most)


def length_step(length: int) -> int:
    """Which of the lengths that texts are padded up to; texts of one step cost the same beside each other."""
    return bisect_left(_LENGTHS, length)


@cache
def near_steps(step: int) -> tuple[int, ...]:
    """The steps whose texts run together with those of a step (see `length_buckets`), cheapest first.

    Shorter ones cost those of the step nothing; longer ones make them as long.
    """
    lengths = (*_LENGTHS, 2 * _LENGTHS[-1])
    shorter = [other for other in range(step) if lengths[step] <= _RATIO * lengths[other] + _SLACK]
    longer = [other for other in range(step + 1, len(lengths)) if lengths[other] <= _RATIO * lengths[step] + _SLACK]
    return (*reversed(shorter), *longer)
