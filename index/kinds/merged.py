"""Search over merged vectors, whatever lies over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError, InvalidArgument, InvalidVector
from twinlens.index.kinds.effort import Effort
from twinlens.index.kinds.exact import Rows, Scores, compare_all, rank_many, rank_rows
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.structure import Structure
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads

# While so much may be found, a filter does not thin out what is near; it is then mostly items deleted since the merge.
_NEARLY_ALL = 0.9
_DEEPER = 4
_FEW = 32  # candidates that are compared faster at once than in two steps
_NONE = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)

Best = list[tuple[Scores, Keys] | None]


class MergedVectors:
    """A `MainIndex` over a matrix that never changes.

    A structure names candidates, and these are compared again with the stored vectors. It is never asked to leave out
    rows: how far it looks is set by how many of those near the query may be found, and where too few of the candidates
    may, it looks deeper, until comparing with every row that may be found is no more work. So a filter costs time, not
    hits.
    """

    def __init__(
        self,
        keys: Keys,
        matrix: Vectors,
        *,
        threads: SearchThreads,
        structure: tuple[Structure, Effort] | None = None,
        structure_bytes: int = 0,
    ) -> None:
        """Takes what is there; nothing is copied.

        Args:
            keys: Shape (n,), ascending.
            matrix: Unit vectors, shape (n, d), C order.
            threads: Where the threads of searches come from.
            structure: What lies over them and how to use it; None: all are compared.
            structure_bytes: What it takes in memory.
        """
        self.kind = Kind.FLAT if structure is None else structure[0].kind
        self.dimension: int = matrix.shape[1]
        self.keys = keys
        self._matrix: Vectors | None = matrix
        self._threads = threads
        self._structure = structure
        self._structure_bytes = structure_bytes

    def search(
        self,
        queries: Vectors,
        top_k: int,
        *,
        shown: NDArray[np.bool_] | None = None,
        exact: bool = False,
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
        matrix = self._matrix
        structure = self._structure
        if matrix is None:
            raise CollectionError("this vector index is closed")
        count = len(matrix) if shown is None else int(np.count_nonzero(shown))
        found = min(top_k, count)
        queries = np.ascontiguousarray(queries)
        best: Best = [None] * len(queries)
        if structure is not None and not exact and found > 0:
            self._approximate(matrix, structure, queries, found, count, shown, best)
        left = [i for i, each in enumerate(best) if each is None]
        if left:
            rest = queries if len(left) == len(queries) else queries[left]
            for i, each in zip(
                left, compare_all(matrix, self.keys, rest, found, self._threads, shown=shown), strict=True
            ):
                best[i] = each
        done = [each for each in best if each is not None]
        return [scores for scores, _ in done], [keys for _, keys in done]

    def vectors(self, rows: NDArray[np.int64]) -> Vectors:
        """Stored vectors, shape (len(rows), d)."""
        if self._matrix is None:
            raise CollectionError("this vector index is closed")
        return self._matrix[rows]

    @property
    def memory_bytes(self) -> int:
        """What it keeps in memory, without files that are only mapped."""
        return self.keys.nbytes + self._structure_bytes

    def close(self) -> None:
        """Lets go of everything; searches that run keep theirs."""
        self._matrix = None
        self._structure = None

    def _approximate(
        self,
        matrix: Vectors,
        given: tuple[Structure, Effort],
        queries: Vectors,
        found: int,
        count: int,
        shown: NDArray[np.bool_] | None,
        best: Best,
    ) -> None:
        """Fills in the queries that are cheaper this way."""
        structure, efforts = given
        share = count / len(matrix)
        thinned = share < _NEARLY_ALL
        level = efforts.sure if thinned else efforts.usual
        wanted = found
        if shown is not None:
            # So many of the nearest that, drawn by chance, it is rare for fewer than `found` of them to be shown.
            wanted = int((found + (3 * found**0.5 + 4) * (1 - share)) / share) + 1
        if thinned:
            wanted *= 2
        left = list(range(len(queries)))
        while left:
            candidates, effort = level.at(wanted)
            if candidates > structure.most or candidates >= len(matrix) or structure.cost(effort) + candidates >= count:
                return
            some = queries if len(left) == len(queries) else queries[left]
            with self._threads.take(len(left)):
                rows = structure.propose(some, candidates, effort)
            usable = rows >= 0
            if shown is not None:
                usable &= shown[rows]  # row -1 is the last one; it is left out already
            if candidates <= _FEW and usable.all():
                ranked = rank_rows(matrix, self.keys, some, rows, candidates)
                enough, compared = [True] * len(left), [candidates] * len(left)
            else:
                compared = np.count_nonzero(usable, axis=1).tolist()
                enough = _enough(rows, usable, found, wanted // 2 if thinned else None)
                ranked = [
                    rank_many(matrix, self.keys, query, of_query[kept], found) if sure else _NONE
                    for query, of_query, kept, sure in zip(some, rows, usable, enough, strict=True)
                ]
            for i, sure, most, (scores, keys) in zip(left, enough, compared, ranked, strict=True):
                # Where the last of all candidates ties with the last one found, others that tie may not be candidates.
                if sure and (len(keys) == found or len(keys) < most or scores[-1] < scores[found - 1]):
                    best[i] = scores[:found], keys[:found]
            left = [i for i in left if best[i] is None]
            wanted *= _DEEPER


def _enough(rows: Rows, usable: NDArray[np.bool_], found: int, relied: int | None) -> list[bool]:
    """Whether the best of the candidates that may be found are the best of all that may be found.

    All that is near is among the candidates, but not all that is just near enough to be one. Where the first candidates
    are hidden, what is found is of the latter sort, and there may be better that is not among them.

    Args:
        rows: Candidates, best first, shape (q, c).
        usable: Those that may be found, shape (q, c).
        found: How many are wanted.
        relied: So many of the first candidates must hold them, and nothing must be lacking; None: it is a matter of
            number alone.
    """
    enough = np.count_nonzero(usable[:, :relied], axis=1) >= found
    if relied is not None:
        enough &= rows[:, -1] >= 0
    return [bool(each) for each in enough]
