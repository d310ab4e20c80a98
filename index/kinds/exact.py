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
SPARE = 16
_RERANK_ROWS = 1024  # at a time: in float64 they stay in a CPU's cache
# Rows that may be found are copied together when they are few; of more, FAISS is told which they are.
_COPIED_SHARE = 1 / 8
_COPIED_BYTES = 1 << 26

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]


def rank_rows(matrix: Vectors, keys: Keys, queries: Vectors, rows: Rows, found: int) -> list[tuple[Scores, Keys]]:
    """Scores candidate rows exactly and orders them.

    Scores are computed in float64 and rounded once. A pair of vectors therefore has one score, however many queries,
    rows or threads took part, and equal vectors tie exactly.

    Args:
        matrix: Unit vectors, shape (n, d).
        keys: Their keys, shape (n,).
        queries: Shape (q, d).
        rows: Candidates of each query, no two alike, shape (q, c).
        found: How many of them to return, at most c.

    Returns:
        Per query scores in [-1, 1] and keys, both (found,), best first; ties by lower key.
    """
    candidates = rows.shape[1]
    exact = np.empty(rows.shape, dtype=np.float64)
    width = max(1, min(candidates, _RERANK_ROWS))
    height = _RERANK_ROWS // width
    for top in range(0, len(queries), height):
        wide = queries[top : top + height].astype(np.float64)
        for left in range(0, candidates, width):
            block = np.s_[top : top + height, left : left + width]
            np.einsum("qcd,qd->qc", matrix[rows[block]].astype(np.float64), wide, out=exact[block])
    scores = np.minimum(np.maximum(exact, -1.0), 1.0).astype(np.float32)
    of_rows = keys[rows]
    order = np.lexsort((of_rows, -scores))[:, :found]
    return [(of_query[best], its_keys[best]) for of_query, its_keys, best in zip(scores, of_rows, order, strict=True)]


def best_rows(matrix: Vectors, keys: Keys, query: NDArray[np.float32], rows: Rows, found: int) -> tuple[Scores, Keys]:
    """As `rank_rows`, for one query, shape (d,), and its rows, shape (c,)."""
    return rank_rows(matrix, keys, query[np.newaxis], rows[np.newaxis], found)[0]


def rank_many(matrix: Vectors, keys: Keys, query: NDArray[np.float32], rows: Rows, found: int) -> tuple[Scores, Keys]:
    """As `best_rows`, in two steps: in float32 what is clearly not among the first `found`, then the rest exactly.

    Returns:
        All of the rest, which is `found` or more; as many as there are rows only where all score alike.
    """
    near = matrix[rows]
    rough = near @ query
    kept = np.flatnonzero(rough >= np.partition(rough, len(rows) - found)[len(rows) - found] - ROUNDING)
    return best_rows(near[kept], keys[rows[kept]], query, np.arange(len(kept)), len(kept))


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
        Per query what `rank_rows` returns.
    """
    count = len(matrix) if shown is None else int(np.count_nonzero(shown))
    if found == 0:
        return [(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries)
    wanted = min(found + SPARE, count)
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
