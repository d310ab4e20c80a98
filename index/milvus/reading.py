"""Going through a collection in Milvus, and counting it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.index.filters.ast import Filter
from twinlens.index.item import Item, Modality
from twinlens.index.milvus.filtering import matching
from twinlens.index.milvus.items import StoredItem
from twinlens.index.milvus.state import MilvusState
from twinlens.index.operations.export import Export, ExportPage
from twinlens.index.paging import check_limit
from twinlens.index.prepare import check_modality
from twinlens.index.protocol import Vectors
from twinlens.index.stats import GenerationState, IndexState, Stats


def stats(state: MilvusState, collection_id: str) -> Stats:
    """As `MilvusCollection.stats`."""
    with state.use():
        active = state.generations.active()
        counts = {modality: state.generations.vectors(active, modality).count() for modality in Modality}
        kind = state.generations.kind(active.number)
        return Stats(
            id=collection_id,
            space_id=active.space_id,
            dimension=active.dimension,
            items=state.items.count(),
            image_vectors=counts[Modality.IMAGE],
            text_vectors=counts[Modality.TEXT],
            created_s=min(state.generations.created_s(one.number) for one in state.generations.all()),
            kind=kind,
            indexes=tuple(IndexState(modality, kind=kind, merged=count) for modality, count in counts.items()),
        )


def generation_states(state: MilvusState) -> list[GenerationState]:
    """As `MilvusCollection.generations`."""
    with state.use():
        active = state.generations.active().number
        return [
            GenerationState(
                number=one.number,
                space_id=one.space_id,
                dimension=one.dimension,
                active=one.number == active,
                items=state.generations.count_marked(one.number),
                created_s=state.generations.created_s(one.number),
            )
            for one in state.generations.all()
        ]


def vector_pages(state: MilvusState, modality: Modality, batch: int) -> Iterator[tuple[list[Item], Vectors]]:
    """Pages of at most `batch` active vectors, shape (n, d), with the items they belong to."""
    wanted, limit = check_modality(modality), check_limit(batch)
    with state.use():
        vectors = state.generations.vectors(state.generations.active(), wanted)
        pages = vectors.scan(page=limit)
    while True:
        with state.use():
            page = next(pages, None)
            if page is None:
                return
            keys, matrix = page
            items = state.by_key(keys.tolist())
        rows = [row for row, key in enumerate(keys.tolist()) if key in items]
        if rows:
            yield [items[key] for key in keys[rows].tolist()], matrix[rows]


def export(state: MilvusState, modalities: Sequence[Modality], node: Filter | None, batch: int) -> Export:
    """As `MilvusCollection.export`."""
    wanted = [check_modality(modality) for modality in modalities]
    with state.use():
        active = state.generations.active()
        count = state.items.count() if node is None else sum(1 for _ in matching(state, node))

    def page_of(some: list[StoredItem]) -> ExportPage:
        of_items: dict[int, dict[Modality, NDArray[np.float32]]] = {stored.key: {} for stored in some}
        for modality in wanted:
            for keys, vectors in state.generations.vectors(active, modality).fetch(np.array(list(of_items), np.int64)):
                for key, vector in zip(keys.tolist(), vectors, strict=True):
                    of_items[key][modality] = vector
        return ExportPage([stored.item for stored in some], list(of_items.values()))

    def pages() -> Iterator[ExportPage]:
        found = matching(state, node)
        while True:
            with state.use():
                state.generations.find(active.number)  # raises where it was dropped meanwhile
                some = list(itertools.islice(found, batch))
                if not some:
                    return
                page = page_of(some)
            yield page

    return Export(active.space_id, active.dimension, count, pages())
