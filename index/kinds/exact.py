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
_AT_ONCE = 32  # so many candidates more than are wanted are compared faster at once than in two steps
_RERANK_ROWS = 1024  # at a time: in float64 they stay in a CPU's cache
# Rows that may be found are copied together when they are few; of more, FAISS is told which they are.
_COPIED_SHARE = 1 / 8
_COPIED_BYTES = 1 << 26

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]


def rank_rows(matrix: Vectors, keys: Keys, queries: Vectors, rows: Rows, found: int) -> tuple[Scores, Keys]:
    """Scores candidate rows exactly and orders them.

    Scores are computed in float64 and rounded once. A pair of vectors therefore has one score, however many queries,
    rows or threads took part, and equal vectors tie exactly.

    Args:
        matrix: Unit vectors, shape (n, d).
        keys: Their keys, shape (n,).
        queries: Shape (q, d).
        rows: Candidates of each query, no two alike, shape (q, c); -1 is none.
        found: How many of them to return, at most c.

    Returns:
        Scores in [-1, 1] and keys, both (q, found), best first; ties by lower key. Where there were fewer candidates,
        the scores of the rest are -inf.
    """
    candidates = rows.shape[1]
    scores = np.empty(rows.shape, dtype=np.float32)
    width = max(1, min(candidates, _RERANK_ROWS))
    height = _RERANK_ROWS // width
    for top in range(0, len(queries), height):
        for left in range(0, candidates, width):
            block = np.s_[top : top + height, left : left + width]
            scores[block] = _exact_scores(matrix[rows[block]], queries[top : top + height])
    if rows.min(initial=0) < 0:
        scores[rows < 0] = -np.inf
    of_rows = keys[rows]
    order = np.lexsort((of_rows, -scores))[:, :found]
    lines = np.arange(len(rows))[:, np.newaxis]
    return scores[lines, order], of_rows[lines, order]


def best_rows(matrix: Vectors, keys: Keys, query: NDArray[np.float32], rows: Rows, found: int) -> tuple[Scores, Keys]:
    """As `rank_rows`, for one query, shape (d,), and its rows, shape (c,)."""
    scores, of_rows = rank_rows(matrix, keys, query[np.newaxis], rows[np.newaxis], found)
    return scores[0], of_rows[0]


def rank_near(
    matrix: Vectors, keys: Keys, queries: Vectors, rows: Rows, found: int
) -> tuple[Scores, Keys, NDArray[np.bool_]]:
    """As `rank_rows`, in two steps where that is faster: by float32, and then those near the cut exactly.

    FAISS's threads are set by the caller.

    Args:
        matrix: As for `rank_rows`.
        keys: As for `rank_rows`.
        queries: As for `rank_rows`, C order.
        rows: As for `rank_rows`; what is no candidate scores less than those that are, or about as much.
        found: How many of them to return, from 1 and at most c.

    Returns:
        Scores and keys as of `rank_rows`, and whether they are sure, shape (q,): False where all candidates that were
        not returned tie with the last one that was, so that others, which are no candidates, might as well.
    """
    candidates = rows.shape[1]
    kept = there = np.full(len(rows), candidates) if rows.min(initial=0) >= 0 else np.count_nonzero(rows >= 0, axis=1)
    near = rows
    if candidates > found + _AT_ONCE and len(rows):
        rough = _rough_scores(matrix, queries, rows)
        cut = candidates - found
        is_near = rough >= np.partition(rough, cut, axis=1)[:, cut : cut + 1] - ROUNDING
        kept = np.count_nonzero(is_near, axis=1)
        if len(rows) == 1:
            near = rows[is_near][np.newaxis]
        else:
            most = int(kept.max())
            near = np.take_along_axis(rows, np.argpartition(-rough, most - 1, axis=1)[:, :most], axis=1)
    scores, of_rows = rank_rows(matrix, keys, queries, near, near.shape[1])
    sure = (kept < there) | (there <= found)
    if not sure.all():
        left = np.flatnonzero(~sure)
        sure[left] = scores[left, there[left] - 1] < scores[left, found - 1]
    return scores[:, :found], of_rows[:, :found], sure


def rank_one(matrix: Vectors, keys: Keys, query: Vectors, rows: Rows, found: int) -> tuple[Scores, Keys, bool]:
    """As `rank_near` for one query, shape (1, d), of which all rows, shape (1, c), are candidates: in half the time."""
    candidates = rows.shape[1]
    near = rows[0]
    if candidates > found + _AT_ONCE:
        rough = _rough_scores(matrix, query, rows)[0]
        order = rough.copy()
        order.partition(candidates - found)
        near = near[rough >= order[candidates - found] - ROUNDING]
    scores = _exact_scores(matrix[near][np.newaxis], query)[0]
    of_rows = keys[near]
    best = np.lexsort((of_rows, -scores))
    sure = len(near) < candidates or candidates <= found or bool(scores[best[-1]] < scores[best[found - 1]])
    best = best[np.newaxis, :found]
    return scores[best], of_rows[best], sure


def compare_all(
    matrix: Vectors,
    keys: Keys,
    queries: Vectors,
    found: int,
    threads: SearchThreads,
    *,
    shown: NDArray[np.bool_] | None = None,
) -> tuple[Scores, Keys]:
    """Compares every query with every row that may be found.

    Args:
        matrix: Unit vectors, shape (n, d), C order.
        keys: Their keys, shape (n,).
        queries: Unit vectors, shape (q, d).
        found: How many to return per query; at most as many as may be found.
        threads: Where FAISS's threads come from.
        shown: Which rows may be found, shape (n,); None: all.

    Returns:
        What `rank_rows` returns.
    """
    count = len(matrix) if shown is None else int(np.count_nonzero(shown))
    if found == 0 or len(queries) == 0:
        return np.empty((len(queries), found), np.float32), np.empty((len(queries), found), np.int64)
    wanted = min(found + SPARE, count)
    if shown is not None and count < _COPIED_SHARE * len(matrix) and count * matrix.shape[1] * 4 <= _COPIED_BYTES:
        few = np.flatnonzero(shown)
        return compare_all(matrix[few], keys[few], queries, found, threads)
    rough, rows = _nearest(matrix, queries, wanted, threads, shown)
    scores, of_rows = rank_rows(matrix, keys, queries, rows, found)
    if wanted < count:
        border = rough[:, found - 1] - ROUNDING
        for i in np.flatnonzero(rough[:, -1] >= border).tolist():  # more ties than spare candidates
            near = matrix @ queries[i] >= border[i]
            candidates = np.flatnonzero(near if shown is None else near & shown)
            scores[i], of_rows[i] = best_rows(matrix, keys, queries[i], candidates, found)
    return scores, of_rows


def _exact_scores(near: Vectors, queries: Vectors) -> Scores:
    """Of vectors, shape (q, c, d), for queries, shape (q, d): shape (q, c). The sums do not depend on q and c."""
    exact = np.einsum("qcd,qd->qc", near.astype(np.float64), queries.astype(np.float64))
    scores: Scores = np.minimum(np.maximum(exact, -1.0), 1.0).astype(np.float32)
    return scores


def _rough_scores(matrix: Vectors, queries: Vectors, rows: Rows) -> Scores:
    """Inner products in float32, shape (q, c); -inf for row -1. Other Python threads run meanwhile."""
    faiss = import_faiss()
    pointer = faiss.swig_ptr
    scores = np.empty(rows.shape, dtype=np.float32)
    faiss.fvec_inner_products_by_idx(
        pointer(scores), pointer(queries), pointer(matrix), pointer(rows), matrix.shape[1], *rows.shape
    )
    return scores


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
