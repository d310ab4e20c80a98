"""What holds the merged vectors of a generation."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import Keys, Vectors


class MainIndex(Protocol):
    """Unit vectors that never change, by ascending key. All methods may be called from any thread, side by side.

    Attributes:
        kind: Never `auto`.
        dimension: Of the vectors.
        keys: int64, shape (n,), ascending, no two alike. Row r is the vector of `keys[r]`.
    """

    kind: Kind
    dimension: int
    keys: Keys

    def search(
        self,
        queries: Vectors,
        top_k: int,
        *,
        shown: NDArray[np.bool_] | None = None,
        exact: bool = False,
    ) -> tuple[Vectors, Keys]:
        """Finds the nearest by inner product; scores are computed again in float64 from the stored vectors.

        Args:
            queries: Unit vectors, shape (q, d).
            top_k: How many at most, from 1.
            shown: Which rows may be found, shape (n,); None: all.
            exact: Compare with every row that may be found.

        Returns:
            Scores and keys, both (q, found), best first, ties by lower key. `found` is `top_k`, or how many rows may be
            found if these are fewer.
        """

    def vectors(self, rows: NDArray[np.int64]) -> Vectors:
        """Stored vectors, shape (len(rows), d)."""

    @property
    def memory_bytes(self) -> int:
        """What it keeps in memory, without files that are only mapped."""

    def close(self) -> None:
        """Frees memory; no method may be called afterwards."""
