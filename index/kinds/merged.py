"""Search over merged vectors, whatever lies over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError, InvalidArgument, InvalidVector
from twinlens.index.kinds.exact import compare_all
from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads


class MergedVectors:
    """A `MainIndex` over a matrix that never changes."""

    def __init__(self, keys: Keys, matrix: Vectors, *, kind: Kind, threads: SearchThreads) -> None:
        """Takes what is there; nothing is copied.

        Args:
            keys: Shape (n,), ascending.
            matrix: Unit vectors, shape (n, d), C order.
            kind: What lies over them.
            threads: Where the threads of searches come from.
        """
        self.kind = kind
        self.dimension: int = matrix.shape[1]
        self.keys = keys
        self._matrix: Vectors | None = matrix
        self._threads = threads

    def search(
        self,
        queries: Vectors,
        top_k: int,
        *,
        shown: NDArray[np.bool_] | None = None,
        exact: bool = False,  # noqa: ARG002
    ) -> tuple[list[NDArray[np.float32]], list[Keys]]:
        """Finds the nearest by inner product; scores are computed again in float64 from the stored vectors.

        Args:
            queries: Unit vectors, shape (q, d).
            top_k: How many at most, from 1.
            shown: Which rows may be found, shape (n,); None: all.
            exact: Compare with every row that may be found.

        Returns:
            Per query scores and keys, best first, ties by lower key: as many as `top_k` while that many rows are shown.

        Raises:
            InvalidArgument: top_k below 1.
            InvalidVector: another dimension.
        """
        if top_k < 1:
            raise InvalidArgument(f"top_k is {top_k}, but must be at least 1")
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise InvalidVector(f"queries of shape {queries.shape} where (q, {self.dimension}) is wanted")
        matrix = self._open()
        found = min(top_k, len(matrix) if shown is None else int(np.count_nonzero(shown)))
        best = compare_all(matrix, self.keys, queries, found, self._threads, shown=shown)
        return [scores for scores, _ in best], [keys for _, keys in best]

    def vectors(self, rows: NDArray[np.int64]) -> Vectors:
        """Stored vectors, shape (len(rows), d)."""
        return self._open()[rows]

    @property
    def memory_bytes(self) -> int:
        """What it keeps in memory, without files that are only mapped."""
        return self.keys.nbytes

    def close(self) -> None:
        """Lets go of the mapping; searches that run keep theirs."""
        self._matrix = None

    def _open(self) -> Vectors:
        matrix = self._matrix
        if matrix is None:
            raise CollectionError("this vector index is closed")
        return matrix
