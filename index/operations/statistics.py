"""Counting and measuring a collection."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from twinlens.index import generations, store
from twinlens.index.filters import metadata_indexes
from twinlens.index.item import Modality
from twinlens.index.protocol import VectorIndex
from twinlens.index.state import DATABASE_FILE, CollectionState
from twinlens.index.stats import GenerationState, IndexState, Sizes, Stats


def collection_stats(state: CollectionState, collection_id: str) -> Stats:
    """As `Collection.stats`."""
    with state.use():
        loaded = state.current()
        with state.database.read() as connection:
            items = store.count_items(connection)
            variants = generations.variants_of(connection, loaded.generation.number)
            all_generations = generations.all_generations(connection)
            indexed = metadata_indexes.listed(connection)
        indexes = [_index_state(state, modality, engine) for modality, engine in loaded.engines.items()]
        return Stats(
            id=collection_id,
            space_id=loaded.generation.space_id,
            dimension=loaded.generation.dimension,
            items=items,
            image_vectors=len(loaded.engines[Modality.IMAGE]),
            text_vectors=len(loaded.engines[Modality.TEXT]),
            created_s=state.created_s,
            variants=variants,
            kind=state.kind,
            indexes=tuple(indexes),
            sizes=_sizes(state, indexes, items),
            generations=tuple(all_generations),
            metadata_indexes=tuple(sorted(indexed.values())),
        )


def generation_states(state: CollectionState) -> list[GenerationState]:
    """As `Collection.generations`."""
    with state.use(), state.database.read() as connection:
        return generations.all_generations(connection)


def _index_state(state: CollectionState, modality: Modality, engine: VectorIndex) -> IndexState:
    tell = getattr(engine, "state", None)  # engines without merges need not have one
    found = IndexState(modality, pending=len(engine)) if tell is None else tell(modality)
    return replace(found, recall=state.audit.recall(modality))


def _sizes(state: CollectionState, indexes: Iterable[IndexState], items: int) -> Sizes:
    database = state.folder / DATABASE_FILE
    return Sizes(
        database=_bytes_of(database.with_name(database.name + end) for end in ("", "-wal", "-shm")),
        indexes=_bytes_of(state.segments.rglob("*")),
        pictures=state.picture_bytes.known(items),
        memory=sum(index.memory_bytes for index in indexes),
    )


def _bytes_of(paths: Iterable[Path]) -> int:
    total = 0
    with suppress(FileNotFoundError):  # a merge has removed a folder while it was listed
        for path in paths:
            with suppress(FileNotFoundError):
                total += path.stat().st_size if path.is_file() else 0
    return total
