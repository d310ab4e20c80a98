"""The engines of a generation, out of its segments and what changed since they were made."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from twinlens.index.errors import CollectionError, EngineUnavailable
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.kinds.device import Device
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.kinds.segment import open_segment
from twinlens.index.search_threads import SearchThreads
from twinlens.index.stored_vectors import stream_vectors
from twinlens.index.tree.catch_up import catch_up
from twinlens.index.tree.segment_rows import find_segments
from twinlens.index.tree.tree_index import TreeIndex

log = logging.getLogger(__name__)


def open_trees(
    connection: sqlite3.Connection,
    generation: Generation,
    folder: Path,
    name: str,
    *,
    threads: SearchThreads,
    device: Device,
) -> Mapping[Modality, TreeIndex]:
    """Opens the segments that count and takes over what changed since; without one, all comes from the database.

    Args:
        connection: Inside a transaction, so that all is of one moment.
        generation: Whose vectors.
        folder: Where the segments lie.
        name: What to call the collection.
        threads: Where the threads of searches come from.
        device: What searches the segments.

    Raises:
        CorruptCollection: a vector or a row in the database is damaged. Damaged segments are no error: they are not
            used, and one line in the log says so.
        EngineUnavailable: FAISS is not installed, or sees no device of that sort.
    """
    trees = {modality: TreeIndex(generation.dimension, threads) for modality in Modality}
    rows = find_segments(connection, generation.number, name)
    for modality, row in rows.items():
        tree = trees[modality]
        main = open_main(folder / row.token, generation, name, threads=threads, device=device)
        if main is not None:
            view = tree.new_view(main)
            step = catch_up(connection, view, generation, modality, row.through, name)
            tree.swap(view, row.token, step.entries)
    unmerged = [modality for modality, tree in trees.items() if not tree.token]
    if unmerged:
        number, dimension = generation.number, generation.dimension
        for modality, keys, vectors in stream_vectors(connection, number, dimension, name, unmerged):
            trees[modality].upsert(keys, vectors)
    return trees


def open_main(
    folder: Path, generation: Generation, name: str, *, threads: SearchThreads, device: Device
) -> MainIndex | None:
    """Opens a segment; None where it cannot be used."""
    if not folder.is_dir():
        log.info("%s: merged vectors were not finished or are gone; reading all from the database", name)
        return None
    try:
        main = open_segment(folder, threads=threads, device=device)
    except EngineUnavailable:
        raise
    except (CollectionError, OSError) as error:
        log.warning("%s: merged vectors are damaged (%s); building them again from the database", name, error)
        return None
    if main.dimension != generation.dimension:
        log.warning("%s: merged vectors have another dimension; building them again from the database", name)
        main.close()
        return None
    return main
