"""Search over merged vectors, whatever lies over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError, InvalidArgument, InvalidVector
from twinlens.index.kinds.effort import Effort
from twinlens.index.kinds.exact import Rows, Scores, compare_all, rank_near, rank_one
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.structure import Structure
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads

# While so much may be found, a filter does not thin out what is near; it is then mostly items deleted since the merge.
_NEARLY_ALL = 0.9
_DEEPER = 4


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
    ) -> tuple[Scores, Keys]:
        """Finds the nearest by inner product; scores are computed again in float64 from the stored vectors.

        Args:
            queries: Unit vectors, shape (q, d).
            top_k: How many at most, from 1.
            shown: Which rows may be found, shape (n,); None: all.
            exact: Compare with every row that may be found.

        Returns:
            Scores and keys, both (q, found), best first, ties by lower key. `found` is `top_k`, or how many rows may be
            found if these are fewer.

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
        if structure is None or exact or found == 0:
            return compare_all(matrix, self.keys, queries, found, self._threads, shown=shown)
        if shown is None and len(queries) == 1 and (alone := self._usual(matrix, structure, queries, found)):
            return alone
        return self._approximate(matrix, structure, queries, found, count, shown)

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

    def _usual(
        self, matrix: Vectors, given: tuple[Structure, Effort], query: Vectors, found: int
    ) -> tuple[Scores, Keys] | None:
        """One query without a filter: what most searches are, and nothing is done that only others need.

        Returns:
            None where it is not as simple as that.
        """
        structure, efforts = given
        candidates, effort = efforts.usual.at(found)
        count = len(matrix)
        if candidates > structure.most or structure.cost(effort) + candidates >= count:
            return None
        with self._threads.take():
            rows = structure.propose(query, candidates, effort)
            if rows[0, -1] < 0:  # it found no more, and these come last
                return None
            scores, keys, sure = rank_one(matrix, self.keys, query, rows, found)
        return (scores, keys) if sure else None

    def _approximate(
        self,
        matrix: Vectors,
        given: tuple[Structure, Effort],
        queries: Vectors,
        found: int,
        count: int,
        shown: NDArray[np.bool_] | None,
    ) -> tuple[Scores, Keys]:
        """Asks the structure as long as that is cheaper than to compare with all."""
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
        best: tuple[Scores, Keys] | None = None
        left = np.arange(len(queries))  # those not in `best` yet
        while True:
            candidates, effort = level.at(wanted)
            some = queries if best is None else queries[left]
            if candidates > structure.most or candidates >= len(matrix) or structure.cost(effort) + candidates >= count:
                scores, keys = compare_all(matrix, self.keys, some, found, self._threads, shown=shown)
                sure = np.ones(len(some), dtype=np.bool_)
            else:
                with self._threads.take(len(some)):
                    rows = structure.propose(some, candidates, effort)
                complete = rows[:, -1] >= 0
                if shown is not None:
                    rows[~shown[rows]] = -1  # row -1 is the last one, but stays what it is
                with self._threads.take():  # on several threads, waking them takes longer than what they save
                    scores, keys, sure = rank_near(matrix, self.keys, some, rows, found)
                sure &= _enough(rows, found, wanted // 2 if thinned else None, complete)
            if best is None and sure.all():
                return scores, keys
            best = best or (np.empty_like(scores), np.empty_like(keys))
            best[0][left[sure]], best[1][left[sure]] = scores[sure], keys[sure]
            left = left[~sure]
            if not len(left):
                return best
            wanted *= _DEEPER


def _enough(rows: Rows, found: int, relied: int | None, complete: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the best of the candidates that may be found are the best of all that may be found, shape (q,).

    All that is near is among the candidates, but not all that is just near enough to be one. Where the first candidates
    are hidden, what is found is of the latter sort, and there may be better that is not among them.

    Args:
        rows: Candidates, best first, shape (q, c); -1 for those that may not be found.
        found: How many are wanted.
        relied: So many of the first candidates must hold them, and nothing must be lacking; None: it is a matter of
            number alone.
        complete: Whether as many were proposed as were asked for, shape (q,).
    """
    enough: NDArray[np.bool_] = np.count_nonzero(rows[:, :relied] >= 0, axis=1) >= found
    return enough if relied is None else enough & complete
