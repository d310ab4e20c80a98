"""Counting and measuring a collection."""

from __future__ import annotations

from twinlens.index import generations, store
from twinlens.index.filters import metadata_indexes
from twinlens.index.item import Modality
from twinlens.index.state import CollectionState
from twinlens.index.stats import GenerationState, IndexState, Stats


def collection_stats(state: CollectionState, collection_id: str) -> Stats:
    """As `Collection.stats`."""
    with state.use():
        loaded = state.current()
        with state.database.read() as connection:
            items = store.count_items(connection)
            variants = generations.variants_of(connection, loaded.generation.number)
            indexed = tuple(metadata_indexes.listed(connection).values())
        counts = {modality: len(engine) for modality, engine in loaded.engines.items()}
        return Stats(
            id=collection_id,
            space_id=loaded.generation.space_id,
            dimension=loaded.generation.dimension,
            items=items,
            image_vectors=counts[Modality.IMAGE],
            text_vectors=counts[Modality.TEXT],
            created_s=state.created_s,
            variants=variants,
            kind=state.kind,
            metadata_indexes=indexed,
            indexes=tuple(IndexState(modality, pending=count) for modality, count in counts.items()),
        )


def generation_states(state: CollectionState) -> list[GenerationState]:
    """As `Collection.generations`."""
    with state.use(), state.database.read() as connection:
        return generations.all_generations(connection)
