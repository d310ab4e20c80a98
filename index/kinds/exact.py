"""The exact comparison that every kind ends with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinlens.index.faiss_library import import_faiss
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads

# float32 sums in another order differ by far less than this for unit vectors, so whatever can belong to the first k by
# the exact score is within it of the k-th by FAISS's.
ROUNDING = 1e-5
_SPARE = 16
_RERANK_ROWS = 4096
# Rows that may be found are copied together when they are few; of more, FAISS is told which they are.
_COPIED_SHARE = 1 / 8
_COPIED_BYTES = 1 << 26

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]


def best_rows(matrix: Vectors, keys: Keys, query: NDArray[np.float32], rows: Rows, found: int) -> tuple[Scores, Keys]:
    """Scores candidate rows exactly and orders them.

    Scores are computed in float64 and rounded once. A pair of vectors therefore has one score, however many queries,
    rows or threads took part, and equal vectors tie exactly.

    Args:
        matrix: Unit vectors, shape (n, d).
        keys: Their keys, shape (n,).
        query: Shape (d,).
        rows: Candidates, no two alike, shape (c,).
        found: How many of them to return, at most c.

    Returns:
        Scores in [-1, 1] and keys, both (found,), best first; ties by lower key.
    """
    wide = query.astype(np.float64)
    exact = np.concatenate(
        [
            np.einsum("nd,d->n", matrix[rows[start : start + _RERANK_ROWS]].astype(np.float64), wide)
            for start in range(0, max(len(rows), 1), _RERANK_ROWS)
        ]
    )
    scores = np.clip(exact, -1.0, 1.0).astype(np.float32)
    of_rows = keys[rows]
    order = np.lexsort((of_rows, -scores))[:found]
    return scores[order], of_rows[order]


def compare_all(
    matrix: Vectors,
    keys: Keys,
    queries: Vectors,
    found: int,
    threads: SearchThreads,
    *,
    shown: NDArray[np.bool_] | None = None,
) -> list[tuple[Scores, Keys]]:
    """Compares every query with every row that may be found.

    Args:
        matrix: Unit vectors, shape (n, d), C order.
        keys: Their keys, shape (n,).
        queries: Unit vectors, shape (q, d).
        found: How many to return per query; at most as many as may be found.
        threads: Where FAISS's threads come from.
        shown: Which rows may be found, shape (n,); None: all.

    Returns:
        Per query what `best_rows` returns.
    """
    count = len(matrix) if shown is None else int(np.count_nonzero(shown))
    if found == 0:
        return [(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries)
    wanted = min(found + _SPARE, count)
    if shown is not None and count < _COPIED_SHARE * len(matrix) and count * matrix.shape[1] * 4 <= _COPIED_BYTES:
        few = np.flatnonzero(shown)
        return compare_all(matrix[few], keys[few], queries, found, threads)
    rough, rows = _nearest(matrix, queries, wanted, threads, shown)
    best = []
    for i, query in enumerate(queries):
        border = rough[i, found - 1] - ROUNDING
        candidates = rows[i]
        if wanted < count and rough[i, -1] >= border:  # more ties than spare candidates
            near = matrix @ query >= border
            candidates = np.flatnonzero(near if shown is None else near & shown)
        best.append(best_rows(matrix, keys, query, candidates, found))
    return best


def _nearest(
    matrix: Vectors,
    queries: Vectors,
    wanted: int,
    threads: SearchThreads,
    shown: NDArray[np.bool_] | None,
) -> tuple[Scores, Rows]:
    """FAISS's scores and rows, both (q, wanted), best first."""
    faiss = import_faiss()
    queries = np.ascontiguousarray(queries)
    selector = None if shown is None else faiss.IDSelectorBitmap(np.packbits(shown, bitorder="little"))
    scores = np.empty((len(queries), wanted), dtype=np.float32)
    rows = np.empty((len(queries), wanted), dtype=np.int64)
    with threads.take(len(queries)):
        faiss.knn_inner_product(
            faiss.swig_ptr(queries),
            faiss.swig_ptr(matrix),
            matrix.shape[1],
            len(queries),
            len(matrix),
            wanted,
            faiss.swig_ptr(scores),
            faiss.swig_ptr(rows),
            selector,
        )
    return scores, rows
