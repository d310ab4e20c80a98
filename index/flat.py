"""Exact search with FAISS over one matrix in memory."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError, EngineUnavailable, InvalidArgument, InvalidVector
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.rwlock import ReadWriteLock

# float32 sums in another order differ by far less than this for unit vectors, so whatever can belong to the first k by
# the exact score is within it of the k-th by FAISS's.
_ROUNDING = 1e-5
_SPARE = 16
_RERANK_ROWS = 4096


class FlatIndex:
    """A `VectorIndex` that compares the query with every vector.

    Vectors lie in one growing matrix that FAISS reads in place; replacing overwrites a row and deleting moves the last
    row into the hole, so neither costs more than the rows concerned. FAISS must not search what is being changed, hence
    a lock for many searches or one change.

    FAISS picks the candidates; their scores are computed again in float64 and rounded once. A pair of vectors therefore
    has one score, however many queries, rows or threads took part, and equal vectors tie exactly.
    """

    def __init__(self, dimension: int, *, threads: int | None = None, turn: threading.Lock | None = None) -> None:
        """Makes an empty index.

        Args:
            dimension: Length of the vectors.
            threads: How many OpenMP threads a search may use; None leaves OpenMP's own setting. It is set in the thread
                that searches, since OpenMP keeps the number per thread.
            turn: Held while FAISS works, where `threads` is given: so all that share it together use no more.

        Raises:
            EngineUnavailable: FAISS is not installed.
        """
        self._faiss = _import_faiss()
        self._threads = threads
        self._turn = turn or threading.Lock()
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
        with self._lock.read():
            rows_of = self._open()
            count = len(rows_of)
            allowed = None if among is None else self._rows_among(among, rows_of)
            found = min(top_k, count if allowed is None else len(allowed))
            scores = np.empty((len(queries), found), dtype=np.float32)
            keys = np.empty((len(queries), found), dtype=np.int64)
            if found == 0 or len(queries) == 0:
                return scores, keys
            if allowed is not None:
                for i, query in enumerate(queries):
                    scores[i], keys[i] = self._best(query, allowed, found)
                return scores, keys
            matrix = self._matrix[:count]
            wanted = min(found + _SPARE, count)
            rough, rows = self._nearest(np.ascontiguousarray(queries), matrix, wanted)
            for i, query in enumerate(queries):
                border = rough[i, found - 1] - _ROUNDING
                candidates = rows[i]
                if wanted < count and rough[i, -1] >= border:  # more ties than spare candidates
                    candidates = np.flatnonzero(matrix @ query >= border)
                scores[i], keys[i] = self._best(query, candidates, found)
        return scores, keys

    def close(self) -> None:
        """Frees the memory."""
        with self._lock.write():
            self._rows = None
            self._matrix = np.empty((0, self._dimension), dtype=np.float32)
            self._keys = np.empty(0, dtype=np.int64)

    def _nearest(self, queries: Vectors, matrix: Vectors, wanted: int) -> tuple[Vectors, Keys]:
        """FAISS's scores and rows, both (q, wanted), best first."""
        knn = functools.partial(self._faiss.knn, queries, matrix, wanted, metric=self._faiss.METRIC_INNER_PRODUCT)
        if self._threads is None:
            scores, rows = knn()
        else:
            with self._turn:
                self._faiss.omp_set_num_threads(self._threads)
                scores, rows = knn()
        return scores, rows

    def _best(self, query: NDArray[np.float32], rows: Keys, found: int) -> tuple[NDArray[np.float32], Keys]:
        """Scores candidate rows exactly and orders them."""
        wide = query.astype(np.float64)
        exact = np.concatenate(
            [
                np.einsum("nd,d->n", self._matrix[rows[start : start + _RERANK_ROWS]].astype(np.float64), wide)
                for start in range(0, len(rows), _RERANK_ROWS)
            ]
        )
        scores = np.clip(exact, -1.0, 1.0).astype(np.float32)
        keys = self._keys[rows]
        order = np.lexsort((keys, -scores))[:found]
        return scores[order], keys[order]

    def _rows_among(self, among: Keys, rows_of: dict[int, int]) -> NDArray[np.int64]:
        rows = [rows_of[key] for key in among.tolist() if key in rows_of]
        return np.array(rows, dtype=np.int64)

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


def _import_faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise EngineUnavailable(
            "FAISS is not installed: install twinlens with an engine, as in pip install 'twinlens[cpu]'",
        ) from error
