"""Few distinct shapes for runtimes that compile and keep code for every shape they meet, as OpenVINO does."""

from __future__ import annotations

from collections.abc import Iterator

# Texts are padded up to one of these lengths: shorter steps where texts are short, for most are.
_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


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
