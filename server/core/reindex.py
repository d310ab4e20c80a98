"""Moving collections to another encoder: every item is embedded again, then each collection flips to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.collection import Collection
from twinlens.index.item import Item, Modality
from twinlens.server.core.active import StartError, all_collections
from twinlens.server.core.app import Application
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Input, Picture, Text
from twinlens.server.core.errors import Reason
from twinlens.server.core.lanes import Priority

_GROUP = 64


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collection is."""

    collection: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Unembeddable:
    """An item the new encoder cannot embed; it stays stored and has no vector in the new space."""

    collection: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """What a re-indexing did."""

    collections: int
    items: int
    unembeddable: Sequence[Unembeddable]


async def reindex(app: Application, progress: Callable[[Progress], None]) -> ReindexReport:
    """Embeds every item of every collection with the application's encoder and makes these vectors the active ones.

    What an interrupted run embedded is kept and not embedded again. No collection flips before all are complete.

    Raises:
        StartError: if the encoder fails on an item.
    """
    space_id = app.engine.manifest.space_id
    behind = [c for c in all_collections(app.catalog) if c.space_id != space_id]
    generations: list[tuple[Collection, int]] = []
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
    return ReindexReport(collections=len(behind), items=items, unembeddable=unembeddable)


async def _fill(
    app: Application,
    collection: Collection,
    generation: int,
    progress: Callable[[Progress], None],
    unembeddable: list[Unembeddable],
) -> int:
    total = (await app.io.submit(Priority.BULK, collection.stats)).items
    embedded = 0
    progress(Progress(collection.id, embedded, total))
    while items := await app.io.submit(Priority.BULK, collection.missing, generation, limit=_GROUP):
        vectors = await _embed(app, collection, items, unembeddable)
        await app.io.submit(Priority.BULK, collection.write_vectors, generation, vectors)
        embedded += len(items)
        progress(Progress(collection.id, embedded, total))
    return embedded


async def _embed(
    app: Application, collection: Collection, items: Sequence[Item], unembeddable: list[Unembeddable]
) -> Mapping[str, Mapping[Modality, NDArray[np.float32]]]:
    """Vectors by item; an item that cannot be embedded gets none, which is written too, so that it counts as done."""
    inputs: list[Input] = []
    owners: list[tuple[Item, Modality]] = []
    for item in items:
        if item.has_image and app.engine.has_image_tower:
            inputs.append(Picture(await app.io.submit(Priority.BULK, collection.get_image, item.id)))
            owners.append((item, Modality.IMAGE))
        if item.caption and app.engine.has_text_tower:
            inputs.append(Text(item.caption))
            owners.append((item, Modality.TEXT))
    outcomes = await app.engine.embed(inputs, Call(request_id="reindex", priority=Priority.BULK))
    vectors: dict[str, dict[Modality, NDArray[np.float32]]] = {item.id: {} for item in items}
    reasons: dict[str, str] = {}
    for (item, modality), outcome in zip(owners, outcomes, strict=True):
        if outcome.vector is not None:
            vectors[item.id][modality] = outcome.vector
        elif outcome.failure is not None:
            if outcome.failure.reason is Reason.INTERNAL:
                # The encoder failed, not the item: writing "nothing to embed" would hide it for good.
                msg = f"item {item.id!r} of collection {collection.id} could not be embedded; what was done is kept"
                raise StartError(msg)
            reasons[item.id] = outcome.failure.message
    unembeddable += [
        Unembeddable(collection.id, id, reasons.get(id, "the model has no tower for it"))
        for id, found in vectors.items()  # noqa: A001 - the id is what it is
        if not found
    ]
    return vectors
