"""Moving collections to another encoder: every item is embedded again, then each collection flips to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.contract import CollectionLike
from twinlens.index.errors import CorruptCollection
from twinlens.index.item import Item, Modality
from twinlens.server.core.active import StartError
from twinlens.server.core.app import Application
from twinlens.server.core.call import Call
from twinlens.server.core.catalogs import all_collections, damaged_collections
from twinlens.server.core.engine import Input, Picture, Text
from twinlens.server.core.errors import Reason
from twinlens.server.core.lanes import Priority

_GROUP = 64

# Items whose vectors of a kind cannot have been embedded: they were brought along.
_WITHOUT_ORIGINAL = {Modality.IMAGE: "has_image = false", Modality.TEXT: "NOT caption:*"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collection is."""

    collection: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Unembeddable:
    """An item of which something could not be embedded: it stays stored without that vector in the new space."""

    collection: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """What a re-indexing did.

    Attributes:
        collections: How many were moved.
        items: How many were embedded.
        unembeddable: Items that lack a vector, and why.
        damaged: Collections that cannot be opened, by id with the reason; they stay as they are.
        dropped: How many generations of other encoders were removed.
    """

    collections: int
    items: int
    unembeddable: Sequence[Unembeddable]
    damaged: Mapping[str, str]
    dropped: int = 0


async def reindex(app: Application, progress: Callable[[Progress], None]) -> ReindexReport:
    """Embeds every item of every collection with the application's encoder and makes these vectors the active ones.

    What an interrupted run embedded is kept and not embedded again. No collection flips before all are complete. A lost
    original stops nothing: its item is named, as one that cannot be embedded.

    Raises:
        StartError: if the encoder fails on an item.
    """
    space_id = app.engine.manifest.space_id
    behind = [c for c in all_collections(app.catalog) if c.space_id != space_id]
    generations: list[tuple[CollectionLike, int]] = []
    items = 0
    unembeddable: list[Unembeddable] = []
    for collection in behind:
        generation = await app.io.submit(
            Priority.BULK, collection.begin_generation, space_id=space_id, dimension=app.engine.dimension
        )
        items += await _fill(app, collection, generation, progress, unembeddable)
        generations.append((collection, generation))
    for collection, generation in generations:
        await app.io.submit(Priority.BULK, collection.activate, generation)
    return ReindexReport(len(behind), items, unembeddable, damaged_collections(app.catalog))


async def drop_others(app: Application) -> int:
    """Removes all generations that are not active, and returns how many there were."""
    dropped = 0
    for collection in all_collections(app.catalog):
        for generation in await app.io.submit(Priority.BULK, collection.generations):
            if not generation.active:
                await app.io.submit(Priority.BULK, collection.drop_generation, generation.number)
                dropped += 1
    return dropped


async def _fill(
    app: Application,
    collection: CollectionLike,
    generation: int,
    progress: Callable[[Progress], None],
    unembeddable: list[Unembeddable],
) -> int:
    total = (await app.io.submit(Priority.BULK, collection.stats)).items
    brought = await app.io.submit(Priority.BULK, _brought, collection)
    embedded = 0
    progress(Progress(collection.id, embedded, total))
    while items := await app.io.submit(Priority.BULK, collection.missing, generation, limit=_GROUP):
        vectors = await _embed(app, collection, items, brought, unembeddable)
        await app.io.submit(Priority.BULK, collection.write_vectors, generation, vectors)
        embedded += len(items)
        progress(Progress(collection.id, embedded, total))
    return embedded


def _brought(collection: CollectionLike) -> Mapping[str, Modality]:
    """Items with a vector that no encoder can make again, and of which kind, of two kinds the first."""
    stats = collection.stats()
    found: dict[str, Modality] = {}
    for modality, count in ((Modality.IMAGE, stats.image_vectors), (Modality.TEXT, stats.text_vectors)):
        if not count:
            continue
        with suppress(CorruptCollection):  # a damaged old vector must not stop the move that would be its cure
            for page in collection.export([modality], filter=_WITHOUT_ORIGINAL[modality]).pages:
                for item, vectors in zip(page.items, page.vectors, strict=True):
                    if vectors:
                        found.setdefault(item.id, modality)
    return found


async def _embed(
    app: Application,
    collection: CollectionLike,
    items: Sequence[Item],
    brought: Mapping[str, Modality],
    unembeddable: list[Unembeddable],
) -> Mapping[str, Mapping[Modality, NDArray[np.float32]]]:
    """Vectors by item; an item that cannot be embedded gets none, which is written too, so that it counts as done."""
    inputs: list[Input] = []
    owners: list[tuple[Item, Modality]] = []
    reasons: dict[str, str] = {}
    for item in items:
        if item.has_image and app.engine.has_image_tower:
            try:
                inputs.append(Picture(await app.io.submit(Priority.BULK, collection.get_image, item.id)))
                owners.append((item, Modality.IMAGE))
            except CorruptCollection:
                reasons[item.id] = "its stored picture is lost or damaged; store the item again"
        if item.caption and app.engine.has_text_tower:
            inputs.append(Text(item.caption))
            owners.append((item, Modality.TEXT))
    outcomes = await app.engine.embed(inputs, Call(request_id="reindex", priority=Priority.BULK)) if inputs else []
    vectors: dict[str, dict[Modality, NDArray[np.float32]]] = {item.id: {} for item in items}
    for (item, modality), outcome in zip(owners, outcomes, strict=True):
        if outcome.vector is not None:
            vectors[item.id][modality] = outcome.vector
        elif outcome.failure is not None:
            if outcome.failure.reason is Reason.INTERNAL:
                # The encoder failed, not the item: writing "nothing to embed" would hide it for good.
                msg = f"item {item.id!r} of collection {collection.id} could not be embedded; what was done is kept"
                raise StartError(msg)
            reasons[item.id] = outcome.failure.message
    for item in items:
        if item.id in brought:
            reasons.setdefault(item.id, _brought_along(brought[item.id]))
        elif not vectors[item.id]:
            reasons.setdefault(item.id, _nothing_to_embed(item))
    unembeddable += [Unembeddable(collection.id, item.id, reasons[item.id]) for item in items if item.id in reasons]
    return vectors


def _brought_along(modality: Modality) -> str:
    what = "picture" if modality is Modality.IMAGE else "caption"
    return f"the vector of its {what} came without the {what}: store it again with one of the new model"


def _nothing_to_embed(item: Item) -> str:
    if item.has_image or item.caption:
        return "the model has no tower for it"
    return "it has neither picture nor caption"
