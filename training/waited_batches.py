"""Batches that tell how long they were waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset


class WaitedBatches(IterableDataset[Any]):
    """The same batches in the same order.

    Attributes:
        waited_s: Seconds that were spent on making them, while nothing else went on in this thread.
    """

    def __init__(self, batches: IterableDataset[Any]) -> None:
        """Takes the batches; none is made yet."""
        self._batches = batches
        self.waited_s = 0.0

    def __iter__(self) -> Iterator[Any]:
        since_s = time.perf_counter()
        for batch in self._batches:
            self.waited_s += time.perf_counter() - since_s
            yield batch
            since_s = time.perf_counter()
