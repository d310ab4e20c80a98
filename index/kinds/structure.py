"""What lies over merged vectors and names candidates for each query."""

from __future__ import annotations

from typing import Protocol

from twinlens.index.kinds.exact import Rows
from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import Vectors


class Structure(Protocol):
    """Never changes once it is built. `propose` may be called from any thread, side by side.

    Attributes:
        kind: Which kind it makes a segment.
        most: How many it can name at once.
        steps: Efforts worth trying, ascending; each finds more than the one before and takes longer.
    """

    kind: Kind
    most: int
    steps: tuple[int, ...]

    def propose(self, queries: Vectors, wanted: int, effort: int) -> Rows:
        """Names the nearest as far as the structure can tell them apart; FAISS's threads are set by the caller.

        Args:
            queries: Unit vectors, shape (q, d), C order.
            wanted: How many at most.
            effort: How thoroughly: `ef_search`, or how many clusters.

        Returns:
            Shape (q, wanted), best first; -1 where it found no more.
        """

    def cost(self, effort: int) -> int:
        """About how many vectors one after the other can be compared in the time that `propose` takes for a query."""
