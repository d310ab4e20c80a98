"""From the database to the engines of a generation."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from twinlens.index.engines import Engines
from twinlens.index.generations import Generation, LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.stored_vectors import stream_vectors
from twinlens.index.tree.open_trees import open_trees


def load_generation(
    connection: sqlite3.Connection, generation: Generation, engines: Engines, *, folder: Path, name: str
) -> LoadedGeneration:
    """Makes the engines of a generation and gives them what it holds.

    Args:
        connection: Inside a transaction, so that all is of one moment.
        generation: Which one.
        engines: How they come to be.
        folder: Where its merged vectors lie.
        name: What to call the collection in errors.

    Raises:
        CorruptCollection: a stored vector is damaged.
        EngineUnavailable: the engine's package is not installed.
    """
    if engines.factory is None:
        trees = open_trees(connection, generation, folder, name, threads=engines.threads, device=engines.options.device)
        return LoadedGeneration(generation, trees, trees)
    made = {modality: engines.factory(generation.dimension) for modality in Modality}
    for modality, keys, vectors in stream_vectors(connection, generation.number, generation.dimension, name):
        made[modality].upsert(keys, vectors)
    return LoadedGeneration(generation, made)
