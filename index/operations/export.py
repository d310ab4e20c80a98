"""Going through all items of a collection with their vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index import generations, store, stored_vectors
from twinlens.index.filters.conditions import Sql
from twinlens.index.interruption import interruptible
from twinlens.index.item import Item, Modality
from twinlens.index.prepare import check_modality
from twinlens.index.state import CollectionState

ItemVectors = Mapping[Modality, NDArray[np.float32]]
"""Vectors of one item, each of shape (d,); a modality it has none of is absent."""


@dataclass(frozen=True, slots=True)
class ExportPage:
    """Some items, in the order of their ids, and in the same order their vectors."""

    items: Sequence[Item]
    vectors: Sequence[ItemVectors]


@dataclass(frozen=True, slots=True)
class Export:
    """All items of a collection, page by page, with vectors of the generation that was active at the start."""

    space_id: str
    dimension: int
    item_count: int
    pages: Iterator[ExportPage]


def export(state: CollectionState, modalities: Sequence[Modality], where: Sql, batch: int) -> Export:
    """As `Collection.export`.

    Args:
        state: The open collection.
        modalities: Whose vectors to read along.
        where: What items must meet.
        batch: How many items a page has at most.
    """
    wanted = [check_modality(modality) for modality in modalities]
    with state.use(), state.database.read() as connection, interruptible(connection, state.closing, state.name):
        generation, _ = generations.find_active(connection, state.name)
        count = store.count_items(connection, where)

    def pages() -> Iterator[ExportPage]:
        after = ""
        while True:
            with state.use(), state.database.read() as connection, interruptible(connection, state.closing, state.name):
                # A generation that was dropped meanwhile must not pass for items without vectors.
                generations.find_generation(connection, generation.number, state.name)
                items = store.page_of_items(connection, after, batch, state.name, where)
                vectors = stored_vectors.vectors_of(connection, generation.number, [item.id for item in items], wanted)
            if not items:
                return
            of_items: dict[str, dict[Modality, NDArray[np.float32]]] = {item.id: {} for item in items}
            keys, blobs = [key for _, _, key, _ in vectors], [blob for *_, blob in vectors]
            decoded = stored_vectors.decode_vectors(keys, blobs, generation.dimension, state.name) if vectors else ()
            for (item_id, modality, _, _), vector in zip(vectors, decoded, strict=True):
                of_items[item_id][Modality(modality)] = vector
            yield ExportPage(items, list(of_items.values()))
            after = items[-1].id

    return Export(generation.space_id, generation.dimension, count, pages())
