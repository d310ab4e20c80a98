"""The vectors of stored items, of any collections."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from twinlens.index.contract import CatalogLike, CollectionLike
from twinlens.index.errors import CollectionError, CollectionNotFound
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Outcome
from twinlens.server.core.errors import Reason, as_item_failure, internal_failure
from twinlens.server.core.lookup import StoredItem, item_vector, refused
from twinlens.server.core.pool import WorkerPool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ItemOf:
    """An item of a collection."""

    collection: str
    item: StoredItem


class ItemVectors:
    """Looks vectors up."""

    def __init__(self, engine: Engine, catalog: CatalogLike, io: WorkerPool) -> None:
        self._engine = engine
        self._catalog = catalog
        self._io = io

    async def look_up(self, wanted: Sequence[ItemOf], call: Call) -> list[Outcome]:
        """The unit vectors of items, each on its own: one that is not there fails alone."""
        if not wanted:
            return []
        return await self._io.submit(call.priority, self._look_up, wanted, call)

    def _look_up(self, wanted: Sequence[ItemOf], call: Call) -> list[Outcome]:
        opened: dict[str, CollectionLike | Outcome] = {}
        outcomes = []
        for each in wanted:
            if each.collection not in opened:
                opened[each.collection] = self._open(each.collection, call)
            collection = opened[each.collection]
            outcomes.append(collection if isinstance(collection, Outcome) else self._vector(collection, each, call))
        return outcomes

    def _open(self, collection_id: str, call: Call) -> CollectionLike | Outcome:
        if not collection_id:
            return refused(Reason.INVALID_INPUT, "the item's collection is empty")
        try:
            found = self._catalog.get(collection_id)
        except CollectionError as error:
            return _failed(error, call)
        if found.space_id != self._engine.manifest.space_id:
            return refused(
                Reason.INVALID_INPUT,
                f"collection {collection_id} belongs to another space than the model; `twinlens reindex` moves it over",
            )
        return found

    def _vector(self, collection: CollectionLike, wanted: ItemOf, call: Call) -> Outcome:
        try:
            return item_vector(collection, wanted.item, self._engine.dimension)
        except CollectionError as error:  # deleted meanwhile, or damaged
            return _failed(error, call)


def _failed(error: CollectionError, call: Call) -> Outcome:
    if isinstance(error, CollectionNotFound):
        return refused(Reason.NOT_FOUND, str(error))
    failure = as_item_failure(error)
    if failure is None:
        log.error("request %s: an item's vector cannot be read: %s", call.request_id, error)
        failure = internal_failure(call.request_id)
    return Outcome(failure=failure)
