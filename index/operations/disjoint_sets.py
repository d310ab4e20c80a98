"""Which things are linked, directly or over others (union-find, Galler and Fischer 1964), many links at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


class DisjointSets:
    """The numbers from 0 to n - 1 in sets, each named by its smallest member."""

    def __init__(self, count: int) -> None:
        """Begins with every number alone."""
        self._parents = np.arange(count, dtype=np.int64)  # never above the number itself

    def join(self, first: Places, second: Places) -> None:
        """Unites the sets of each pair; both of shape (n,)."""
        while True:
            a, b = self.names(first), self.names(second)
            apart = a != b
            if not apart.any():
                return
            first, second = a[apart], b[apart]
            # Of several that claim one set the smallest wins; the others see that in the next round.
            np.minimum.at(self._parents, np.maximum(first, second), np.minimum(first, second))

    def names(self, numbers: Places) -> Places:
        """The names of their sets, shape (n,)."""
        names = self._parents[numbers]
        while True:
            above = self._parents[names]
            if np.array_equal(above, names):
                self._parents[numbers] = names  # the next way is short
                return names
            names = above

    def groups(self) -> list[Places]:
        """The sets of two or more, each ascending; the largest first, of equal ones that of the smallest member."""
        names = self.names(np.arange(len(self._parents), dtype=np.int64))
        order = np.argsort(names, kind="stable")
        starts = np.flatnonzero(np.diff(names[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        several = np.flatnonzero(sizes > 1)
        by_size = several[np.argsort(-sizes[several], kind="stable")]
        return [order[starts[i] : starts[i] + sizes[i]] for i in by_size]
