"""Checking stored vectors, and the engines that search them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from twinlens.index import generations, stored_vectors
from twinlens.index.errors import CorruptCollection
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.operations.checks.few import Few
from twinlens.index.operations.checks.probe import Probe, one_moment
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.state import CollectionState

_PAGE = 4096
_LEAST_FOUND = 0.8

_Rows = Sequence[tuple[int, str, bytes]]


def check_vectors(state: CollectionState) -> Iterator[Progress | Finding]:
    """Reads every vector of every generation; compares the active ones with what the engines hold and find."""
    with state.use(), state.database.read() as connection:
        found = generations.all_generations(connection)
    for of in found:
        for modality in Modality:
            yield from _check(state, Generation(of.number, of.space_id, of.dimension), modality, of.items)


def _check(
    state: CollectionState, generation: Generation, modality: Modality, total: int
) -> Iterator[Progress | Finding]:
    few, after, done, step = Few("vectors"), -1, 0, f"{modality} vectors"
    with one_moment(state, generation, modality) as (connection, probe):
        yield Progress(step, 0, total)
        while True:
            with state.use():
                state.check_not_closing()
                rows = stored_vectors.page_of_vectors(connection, generation.number, modality, after, _PAGE)
            if not rows:
                break
            keys, vectors, damaged = _decoded(rows, generation.dimension, state.name)
            for item_id, message in damaged:
                yield from few.found(item_id, f"{message}; store the item again or restore a backup")
            if probe is not None:
                probe.compare(keys, vectors)
            after = rows[-1][0]
            done += len(rows)
            yield Progress(step, done, max(done, total))
    yield from few.rest()
    if probe is not None:
        yield from _verdict(probe, modality)


def _decoded(rows: _Rows, dimension: int, name: str) -> tuple[Keys, Vectors, list[tuple[str, str]]]:
    """Keys and vectors of the sound ones, and ids of the others with what is wrong."""
    keys = [key for key, _, _ in rows]
    try:
        vectors = stored_vectors.decode_vectors(keys, [blob for _, _, blob in rows], dimension, name)
    except CorruptCollection as error:
        if len(rows) == 1:
            return np.empty(0, np.int64), np.empty((0, dimension), np.float32), [(rows[0][1], str(error))]
        middle = len(rows) // 2
        parts = [_decoded(part, dimension, name) for part in (rows[:middle], rows[middle:])]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), parts[0][2] + parts[1][2]
    return np.array(keys, dtype=np.int64), vectors, []


def _verdict(probe: Probe, modality: Modality) -> Iterator[Finding]:
    rebuild = "merge the collection to rebuild it"
    for complaint in probe.complaints():
        yield Finding("index", "", f"{modality}: {complaint}; {rebuild}")
    if wrong := probe.wrong_searches():
        yield Finding("search", "", f"{modality}: {wrong} exact searches differ from comparing all; {rebuild}")
    if probe.nearest_found < _LEAST_FOUND:
        found = f"the index finds the nearest vector in {probe.nearest_found:.0%} of searches"
        yield Finding("search", "", f"{modality}: {found}; {rebuild}, or give it another kind")
