"""Batches bigger than a server takes, cut into ones it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def split(items: Iterable[T], size: Callable[[T], int], *, max_count: int, max_bytes: int) -> Iterator[list[T]]:
    """Cuts a stream into lists, keeping its order; reads only as far ahead as one list needs.

    Args:
        items: The stream; consumed lazily.
        size: How many bytes an item takes.
        max_count: At most so many items a list, at least 1.
        max_bytes: At most so many bytes a list; a single bigger item still gets a list of its own.

    Yields:
        Lists of at least one item.
    """
    batch: list[T] = []
    batch_bytes = 0
    for item in items:
        item_bytes = size(item)
        if batch and (len(batch) >= max_count or batch_bytes + item_bytes > max_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += item_bytes
    if batch:
        yield batch
