"""Search by Milvus, scored exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError, InvalidArgument, InvalidVector
from twinlens.index.kinds.exact import ROUNDING, best_rows
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.vectors import MAX_K, MilvusVectors
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.rwlock import ReadWriteLock

_SPARE = 16
_WIDER = 8  # by how much more is asked for where ties or gaps were left
_FEW = 2048  # of so few that may be found, all are read and compared
_MANY = 2**14  # hits, with their vectors

_FRESH = 1000

_Best = tuple[NDArray[np.float32], Keys]


class MilvusIndex:
    """A `VectorIndex` whose vectors are in a Milvus collection.

    Milvus picks the candidates; their vectors come along and are scored again in float64, so that scores and order are
    those of every other engine. Where an approximate search returned too few, or more ties than candidates, it is asked
    for more, and in the end every vector is read and compared.
    """

    def __init__(self, vectors: MilvusVectors, *, alone: bool = False) -> None:
        """Takes a collection that exists.

        Args:
            vectors: The collection.
            alone: Whether changes and searches must take turns, as in Milvus Lite.
        """
        self._vectors = vectors
        self._lock = ReadWriteLock() if alone else None
        self._closed = False

    def __len__(self) -> int:
        """How many vectors it holds."""
        with self._reading():
            return self._vectors.count()

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Adds vectors or replaces those of keys already there; of a key given twice the later vector stays.

        Args:
            keys: Shape (n,), not negative.
            vectors: Unit vectors, shape (n, d).

        Raises:
            InvalidVector: another shape.
            CollectionError: Milvus refused, or cannot be reached; some may be stored.
        """
        dimension = self._vectors.dimension
        if vectors.shape != (len(keys), dimension):
            raise InvalidVector(f"vectors of shape {vectors.shape} where ({len(keys)}, {dimension}) is wanted")
        last = {key: row for row, key in enumerate(keys.tolist())}
        with self._writing():
            self._vectors.upsert(list(last), vectors[list(last.values())])

    def delete(self, keys: Keys) -> None:
        """Removes keys; unknown ones are ignored."""
        with self._writing():
            self._vectors.delete(keys.tolist())

    def search(
        self, queries: Vectors, top_k: int, *, exact: bool = False, among: Keys | None = None
    ) -> tuple[Vectors, Keys]:
        """Finds the nearest by inner product.

        Args:
            queries: Unit vectors, shape (q, d).
            top_k: How many at most, from 1.
            exact: Read and compare every vector, unless Milvus compares them all anyway.
            among: Ascending keys: only these may be found; None: all.

        Returns:
            Scores in [-1, 1] and keys, both (q, found), best first; ties by lower key. `found` is `top_k`, or how many
            vectors may be found if these are fewer.

        Raises:
            InvalidArgument: top_k below 1.
            InvalidVector: another dimension.
            CollectionError: Milvus refused, or cannot be reached.
        """
        dimension = self._vectors.dimension
        if top_k < 1:
            raise InvalidArgument(f"top_k is {top_k}, but must be at least 1")
        if queries.ndim != 2 or queries.shape[1] != dimension:
            raise InvalidVector(f"queries of shape {queries.shape} where (q, {dimension}) is wanted")
        self._settle()
        with self._reading():
            best: dict[int, _Best] = {}
            if not self._compares_all(len(queries) * (top_k + _SPARE), among, exact=exact):
                best = self._approximate(queries, top_k, among)
            rest = [i for i in range(len(queries)) if i not in best]
            best.update(zip(rest, self._compared(queries[rest], top_k, among), strict=True))
            found = min((len(keys) for _, keys in best.values()), default=0)
            if not len(queries):
                found = min(top_k, self._vectors.count(among))
        scores = np.empty((len(queries), found), dtype=np.float32)
        keys = np.empty((len(queries), found), dtype=np.int64)
        for i, (of_scores, of_keys) in best.items():
            scores[i], keys[i] = of_scores[:found], of_keys[:found]
        return scores, keys

    def close(self) -> None:
        """Lets go of the collection, which stays."""
        if not self._closed:
            with self._writing():
                self._closed = True

    def _compares_all(self, hits: int, among: Keys | None, *, exact: bool) -> bool:
        """Whether to do without Milvus's search: where it is not exact, or would return more than there is to read."""
        if hits == 0 or (exact and self._vectors.kind is not Kind.FLAT):
            return True
        if among is not None and len(among) <= max(hits, _FEW):
            return True
        return hits > _MANY and self._vectors.count() <= hits

    def _approximate(self, queries: Vectors, top_k: int, among: Keys | None) -> dict[int, _Best]:
        """Asks Milvus, for more and more where need be; returns what is certain, by the query's number."""
        best: dict[int, _Best] = {}
        held: int | None = None
        wanted = min(top_k + _SPARE, MAX_K)
        while top_k <= wanted and len(best) < len(queries):
            waiting = [i for i in range(len(queries)) if i not in best]
            for i, (keys, matrix, unseen) in zip(
                waiting, self._candidates(queries[waiting], wanted, among), strict=True
            ):
                found = min(top_k, len(keys))
                if found < top_k:
                    held = self._vectors.count(among) if held is None else held
                    if found < min(top_k, held):
                        continue
                of_scores, of_keys = best_rows(matrix, keys, queries[i], np.arange(len(keys)), found)
                if not found or unseen < of_scores[-1] - ROUNDING:  # else one that was left out may tie with the last
                    best[i] = of_scores, of_keys
            if wanted == MAX_K:
                break
            wanted = min(wanted * _WIDER, MAX_K)
        return best

    def _candidates(self, queries: Vectors, wanted: int, among: Keys | None) -> Iterator[tuple[Keys, Vectors, float]]:
        """Per query keys and vectors that Milvus returned, and the score that none it left out should exceed."""
        answers = list(self._vectors.search(queries, wanted, among))
        for of_query in zip(*answers, strict=True):
            keys = np.concatenate([of_keys for _, of_keys, _ in of_query])
            matrix = np.concatenate([of_vectors for _, _, of_vectors in of_query])
            unseen = max((float(scores[-1]) for scores, _, _ in of_query if len(scores) >= wanted), default=-np.inf)
            yield keys, matrix, unseen

    def _compared(self, queries: Vectors, top_k: int, among: Keys | None) -> list[_Best]:
        """Reads every vector that may be found and keeps the best."""
        best: list[_Best] = [(np.empty(0, np.float32), np.empty(0, np.int64)) for _ in queries]
        if not len(queries):
            return best
        for keys, matrix in self._vectors.scan() if among is None else self._vectors.fetch(among):
            rows = np.arange(len(keys))
            for i, query in enumerate(queries):
                fresh_scores, fresh_keys = best_rows(matrix, keys, query, rows, min(top_k, len(rows)))
                of_scores = np.concatenate([best[i][0], fresh_scores])
                of_keys = np.concatenate([best[i][1], fresh_keys])
                order = np.lexsort((of_keys, -of_scores))[:top_k]
                best[i] = of_scores[order], of_keys[order]
        return best

    def _settle(self) -> None:
        """Milvus Lite turns what it has not written out yet into arrays for every search anew: 35 µs a vector."""
        if self._lock is not None and self._vectors.fresh > _FRESH:
            with self._writing():
                if self._vectors.fresh > _FRESH:
                    self._vectors.settle()

    def _reading(self) -> AbstractContextManager[None]:
        self._check_open()
        return nullcontext() if self._lock is None else self._lock.read()

    def _writing(self) -> AbstractContextManager[None]:
        self._check_open()
        return nullcontext() if self._lock is None else self._lock.write()

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError("this vector index is closed")
