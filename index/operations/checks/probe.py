"""What an engine holds and finds, to be compared with what is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

from twinlens.index import stored_vectors
from twinlens.index.errors import CollectionError, CorruptCollection
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.operations import statements
from twinlens.index.protocol import Keys, VectorIndex, Vectors
from twinlens.index.state import CollectionState

_SEARCHES = 32
_FEWER_SEARCHES = 8  # while writers wait
_TOP_K = 10
_NOISE = 0.3  # length of what is added to stored vectors to search near them
_ATTEMPTS = 4
_TOLERANCE = 2e-6  # two ways to a float32 cosine
_NAMED = 3


class Probe:
    """An engine's keys and the results of some searches, fed with all stored vectors of the same moment.

    Attributes:
        nearest_found: What share of searches find the nearest of all without `exact`. It is right beside the query, so
            that an index as it was built hardly ever misses it, however hard to tell apart the others are.
    """

    def __init__(self, engine: VectorIndex, near: Vectors) -> None:
        """Asks the engine.

        Args:
            engine: Of the modality.
            near: Some stored vectors, shape (s, d), to search near to; there may be none.
        """
        noise = np.random.default_rng(0).standard_normal(near.shape)
        queries = near + _NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
        self._queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        asked = self._queries.astype(np.float32)
        self._queries = asked.astype(np.float64)
        self._scores, self._found = engine.search(asked, _TOP_K, exact=True)
        rough, _ = engine.search(asked, _TOP_K)
        self.nearest_found = float((rough[:, 0] >= self._scores[:, 0] - _TOLERANCE).mean()) if rough.size else 1.0
        self._count = len(engine)
        keys = getattr(engine, "keys", None)  # not every engine can tell
        self._held: Keys | None = None if keys is None else keys()
        self._stored: list[Keys] = []
        self._best: NDArray[np.float64] = np.empty((len(near), 0))
        self._true: NDArray[np.float64] = np.full(self._found.shape, np.nan)

    def compare(self, keys: Keys, vectors: Vectors) -> None:
        """Takes the next stored vectors, by ascending key."""
        self._stored.append(keys)
        if not len(self._queries) or not len(keys):
            return
        scores = self._queries @ vectors.astype(np.float64).T
        self._best = -np.sort(-np.hstack([self._best, scores]), axis=1)[:, :_TOP_K]
        places = np.minimum(np.searchsorted(keys, self._found), len(keys) - 1)
        here = keys[places] == self._found
        self._true[here] = np.take_along_axis(scores, places, axis=1)[here]

    def complaints(self) -> Iterator[str]:
        """What the engine holds that is not stored, and the other way round; call it after all were compared."""
        stored = np.concatenate(self._stored) if self._stored else np.empty(0, dtype=np.int64)
        if self._held is None:
            if self._count != len(stored):
                yield f"the index holds {self._count} vectors, but {len(stored)} are stored"
            return
        for keys, problem in (
            (np.setdiff1d(stored, self._held, assume_unique=True), "are stored but not in the index"),
            (np.setdiff1d(self._held, stored, assume_unique=True), "are in the index but not stored"),
        ):
            if len(keys):
                named = ", ".join(map(str, keys[:_NAMED])) + (", …" if len(keys) > _NAMED else "")
                yield f"{len(keys)} vectors {problem} (item numbers {named})"

    def wrong_searches(self) -> int:
        """How many exact searches differ from comparing all; call it after all were compared."""
        if self._best.shape != self._scores.shape:
            return len(self._queries)
        best = np.abs(self._best - self._scores) <= _TOLERANCE
        true = np.abs(self._true - self._scores) <= _TOLERANCE  # False for what is not stored at all
        return int((~(best & true).all(axis=1)).sum())


@contextmanager
def one_moment(
    state: CollectionState, generation: Generation, modality: Modality
) -> Iterator[tuple[sqlite3.Connection, Probe | None]]:
    """Lends a connection that sees one moment, and a probe of the engine at that moment.

    Where it is written so often that there is no quiet moment to search, writers are held up once, for few searches.

    Yields:
        The connection, and the probe if this is the active generation.
    """
    for attempt in range(_ATTEMPTS):
        with ExitStack() as stack:
            with state.use(), state.writing:
                loaded = state.current_while_writing()
                connection = stack.enter_context(state.database.read())
                connection.execute("SELECT one FROM collection").fetchone()  # from here on it is this moment
                version = state.version
                engine = loaded.engines[modality] if loaded.generation.number == generation.number else None
                probe = None
                if engine is not None and attempt == _ATTEMPTS - 1:
                    probe = Probe(engine, _some(connection, generation, modality, engine, state.name, _FEWER_SEARCHES))
            if engine is not None and probe is None:
                try:
                    with state.use():
                        probe = Probe(engine, _some(connection, generation, modality, engine, state.name, _SEARCHES))
                except CollectionError:
                    if state.version == version:
                        raise
                if state.version != version:
                    continue
            yield connection, probe
            return


def _some(
    connection: sqlite3.Connection,
    generation: Generation,
    modality: Modality,
    engine: VectorIndex,
    name: str,
    most: int,
) -> Vectors:
    """A few stored vectors, spread over all of the modality, shape (s, d)."""
    count = min(most, len(engine))
    first, last = statements.key_range(connection, generation.number, modality) if count else (0, 0)
    wanted = np.linspace(first, last, count).astype(np.int64) - 1
    found: dict[int, Vectors] = {}
    for after in wanted.tolist():
        for key, _, blob in stored_vectors.page_of_vectors(connection, generation.number, modality, after, 1):
            with suppress(CorruptCollection):  # it is named where all vectors are read
                found[key] = stored_vectors.decode_vectors([key], [blob], generation.dimension, name)
    return np.concatenate([np.empty((0, generation.dimension), dtype=np.float32), *found.values()])
