"""Exact search with FAISS over one matrix in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError, InvalidArgument, InvalidVector
from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.exact import compare_all
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.rwlock import ReadWriteLock
from twinlens.index.search_threads import SearchThreads

# A writer waits for what is being compared, and whoever searches after it, for the writer: so a large batch lets go of
# the lock after about a tenth of a second. FAISS is fast for many queries at a time, and from twenty on.
_COMPARED_AT_ONCE = 1 << 22
_LEAST_QUERIES = 32


class FlatIndex:
    """A `VectorIndex` that compares the query with every vector.

    Vectors lie in one growing matrix that FAISS reads in place; replacing overwrites a row and deleting moves the last
    row into the hole, so neither costs more than the rows concerned. FAISS must not search what is being changed, hence
    a lock for many searches or one change.

    FAISS picks the candidates, and they are compared again as in `rank_rows`.
    """

    def __init__(self, dimension: int, *, threads: SearchThreads | None = None) -> None:
        """Makes an empty index.

        Args:
            dimension: Length of the vectors.
            threads: Where the threads of searches come from; None: a budget of its own.

        Raises:
            EngineUnavailable: FAISS is not installed.
        """
        import_faiss()
        self._threads = threads or SearchThreads()
        self._dimension = dimension
        self._lock = ReadWriteLock()
        self._matrix: Vectors = np.empty((0, dimension), dtype=np.float32)
        self._keys: Keys = np.empty(0, dtype=np.int64)
        self._rows: dict[int, int] | None = {}  # key -> row; None once closed

    def __len__(self) -> int:
        """How many vectors it holds."""
        return len(self._rows or ())

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Adds vectors or replaces those of keys already there; of a key given twice the later vector stays.

        Args:
            keys: Shape (n,), not negative.
            vectors: Unit vectors, shape (n, d).

        Raises:
            InvalidVector: another shape.
        """
        if vectors.shape != (len(keys), self._dimension):
            raise InvalidVector(f"vectors of shape {vectors.shape} where ({len(keys)}, {self._dimension}) is wanted")
        with self._lock.write():
            rows_of = self._open()
            fresh = dict.fromkeys(key for key in keys.tolist() if key not in rows_of)
            count = len(rows_of)
            self._grow(count + len(fresh))
            rows_of.update(zip(fresh, range(count, count + len(fresh)), strict=True))
            rows = [rows_of[key] for key in keys.tolist()]
            self._matrix[rows] = vectors
            self._keys[rows] = keys

    def delete(self, keys: Keys) -> None:
        """Removes keys; unknown ones are ignored."""
        with self._lock.write():
            rows_of = self._open()
            for key in keys.tolist():
                row = rows_of.pop(key, None)
                last = len(rows_of)
                if row is not None and row != last:
                    self._matrix[row] = self._matrix[last]
                    self._keys[row] = self._keys[last]
                    rows_of[int(self._keys[row])] = row

    def search(
        self,
        queries: Vectors,
        top_k: int,
        *,
        exact: bool = False,  # noqa: ARG002
        among: Keys | None = None,
    ) -> tuple[Vectors, Keys]:
        """Finds the nearest by inner product.

        Args:
            queries: Unit vectors, shape (q, d).
            top_k: How many at most, from 1.
            exact: Makes no difference here.
            among: Ascending keys: only these may be found; None: all.

        Returns:
            Scores in [-1, 1] and keys, both (q, found), best first; ties by lower key. `found` is `top_k`, or how many
            vectors may be found if these are fewer.

        Raises:
            InvalidArgument: top_k below 1.
            InvalidVector: another dimension.
        """
        if top_k < 1:
            raise InvalidArgument(f"top_k is {top_k}, but must be at least 1")
        if queries.ndim != 2 or queries.shape[1] != self._dimension:
            raise InvalidVector(f"queries of shape {queries.shape} where (q, {self._dimension}) is wanted")
        at_once = max(_LEAST_QUERIES, _COMPARED_AT_ONCE // max(1, len(self)))
        starts = range(0, max(1, len(queries)), at_once)
        parts = [self._search(queries[start : start + at_once], top_k, among) for start in starts]
        if len(parts) == 1:
            return parts[0]
        found = min(scores.shape[1] for scores, _ in parts)  # writers may have come in between
        return (
            np.concatenate([scores[:, :found] for scores, _ in parts]),
            np.concatenate([keys[:, :found] for _, keys in parts]),
        )

    def keys(self) -> Keys:
        """The keys it holds, ascending."""
        with self._lock.read():
            return np.array(sorted(self._open()), dtype=np.int64)

    def close(self) -> None:
        """Frees the memory."""
        with self._lock.write():
            self._rows = None
            self._matrix = np.empty((0, self._dimension), dtype=np.float32)
            self._keys = np.empty(0, dtype=np.int64)

    def _search(self, queries: Vectors, top_k: int, among: Keys | None) -> tuple[Vectors, Keys]:
        with self._lock.read():
            rows_of = self._open()
            count = len(rows_of)
            shown = None if among is None else self._shown_among(among, rows_of)
            found = min(top_k, count if shown is None else int(np.count_nonzero(shown)))
            return compare_all(self._matrix[:count], self._keys[:count], queries, found, self._threads, shown=shown)

    def _shown_among(self, among: Keys, rows_of: dict[int, int]) -> NDArray[np.bool_]:
        """Which rows have one of these ascending keys, shape (n,)."""
        keys = self._keys[: len(rows_of)]
        if len(among) == 0:
            return np.zeros(len(keys), dtype=np.bool_)
        places = np.minimum(np.searchsorted(among, keys), len(among) - 1)
        return np.asarray(among[places] == keys)

    def _grow(self, count: int) -> None:
        """Makes room; rows beyond those used are address space only until they are written."""
        if count <= len(self._matrix):
            return
        capacity = max(count, len(self._matrix) * 3 // 2, 64)
        matrix = np.empty((capacity, self._dimension), dtype=np.float32)
        keys = np.empty(capacity, dtype=np.int64)
        matrix[: len(self._matrix)] = self._matrix
        keys[: len(self._keys)] = self._keys
        self._matrix, self._keys = matrix, keys

    def _open(self) -> dict[int, int]:
        if self._rows is None:
            raise CollectionError("this vector index is closed")
        return self._rows
