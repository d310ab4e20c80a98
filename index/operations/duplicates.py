"""Finding groups of near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from twinlens.index import stored_vectors
from twinlens.index.errors import InvalidArgument
from twinlens.index.generations import LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations import statements
from twinlens.index.operations.disjoint_sets import DisjointSets
from twinlens.index.operations.near_pairs import Pairs, all_pairs, engine_pairs
from twinlens.index.operations.steps import DuplicateGroup, Progress
from twinlens.index.operations.vector_file import VectorFile
from twinlens.index.prepare import check_modality
from twinlens.index.protocol import Keys
from twinlens.index.state import CollectionState

# Up to here all are compared with all unless asked otherwise: seconds to a minute, and no link is missed.
FEW_VECTORS = 50_000

_PAGE = 4096


def duplicate_groups(
    state: CollectionState, modality: Modality, *, threshold: float, exact: bool | None
) -> Iterator[Progress | DuplicateGroup]:
    """As `Collection.duplicates`."""
    wanted = check_modality(modality)
    if not 0 < threshold <= 1:
        raise InvalidArgument(f"the threshold is {threshold}, but must be above 0 and at most 1")
    with state.use():
        loaded = state.current()
    with VectorFile(state.folder, loaded.generation.dimension, state.name) as file:
        yield from _read(state, loaded, wanted, file)
        keys = file.keys()
        sets, best = DisjointSets(len(keys)), np.zeros(len(keys), dtype=np.float32)
        copied = np.zeros(len(keys), dtype=np.bool_)
        for later, earlier in file.copies():
            sets.join(later, earlier)
            best[later] = best[earlier] = 1
            copied[later] = True
        for pairs in _pairs(state, loaded, wanted, file, keys, np.flatnonzero(~copied), threshold, exact=exact):
            yield Progress("comparing", pairs.done, len(keys))
            sets.join(pairs.first, pairs.second)
            np.maximum.at(best, pairs.first, pairs.scores)
            np.maximum.at(best, pairs.second, pairs.scores)
    yield Progress("comparing", len(keys), len(keys))
    for group in sets.groups():
        ids = _ids(state, keys[group])
        if len(ids) > 1:  # others were deleted meanwhile
            yield DuplicateGroup(ids, float(min(best[group].min(), 1.0)))


def _read(state: CollectionState, loaded: LoadedGeneration, modality: Modality, file: VectorFile) -> Iterator[Progress]:
    generation, total, after, done = loaded.generation, len(loaded.engines[modality]), 0, 0
    yield Progress("reading", 0, total)
    while True:
        with state.use(), state.database.read() as connection:
            rows = stored_vectors.page_of_vectors(connection, generation.number, modality, after, _PAGE)
        if not rows:
            return
        keys, _, blobs = zip(*rows, strict=True)
        file.add(
            np.array(keys, dtype=np.int64), stored_vectors.decode_vectors(keys, blobs, generation.dimension, state.name)
        )
        after = keys[-1]
        done += len(keys)
        yield Progress("reading", done, max(done, total))


def _pairs(
    state: CollectionState,
    loaded: LoadedGeneration,
    modality: Modality,
    file: VectorFile,
    keys: Keys,
    places: NDArray[np.int64],
    threshold: float,
    *,
    exact: bool | None,
) -> Iterator[Pairs]:
    """Takes a turn among the searches for each block, and ends when the collection closes."""
    vectors, engine = file.vectors(), loaded.engines[modality]
    with state.use():  # an index that was closed tells nothing
        flat = getattr(engine, "kind", None) is Kind.FLAT
    if flat:
        exact = True  # its searches compare with all, too, but ten times slower than matrices are multiplied
    if exact or (exact is None and len(places) <= FEW_VECTORS):
        found, turn = all_pairs(vectors, places, threshold), state.engines.threads
    else:
        found, turn = engine_pairs(engine, vectors, keys, places, threshold), None
    while True:
        with state.use():
            state.check_not_closing()
            if turn is None:
                pairs = next(found, None)
            else:
                with turn.take():  # one, although matrices are multiplied with more: searches shall not wait
                    pairs = next(found, None)
        if pairs is None:
            return
        yield pairs


def _ids(state: CollectionState, keys: Keys) -> list[str]:
    """The ids of those that still exist, in the order of their keys."""
    ids: list[str] = []
    for start in range(0, len(keys), _PAGE):
        with state.use(), state.database.read() as connection:
            ids += statements.ids_of(connection, keys[start : start + _PAGE].tolist())
    return ids
