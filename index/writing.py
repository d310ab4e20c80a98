"""Items, as they are stored and removed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twinlens.index import generations, store, stored_vectors
from twinlens.index.deleting import delete_found
from twinlens.index.ids import check_item_id
from twinlens.index.item import NewItem
from twinlens.index.prepare import prepare_item
from twinlens.index.state import CollectionState
from twinlens.index.tree.changes import note_changes


class Writing:
    """The work of changing one collection, behind the methods of `Collection`, where its contract is stated."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state

    def upsert(self, items: Sequence[NewItem], space_id: str) -> list[str]:
        """As `Collection.upsert`."""
        with self._state.use():
            dimension = self._state.check_space(self._state.current(), space_id)
            prepared = [prepare_item(item, dimension) for item in items]
            latest = {item.id: item for item in prepared}
            if not latest:
                return []
            pictures = [(item.content_hash, item.image) for item in latest.values() if item.image is not None]
            replaced: set[str] = set()
            try:
                with self._state.blobs.hold(pictures), self._state.writing:
                    loaded = self._state.current_while_writing()
                    self._state.check_space(loaded, space_id)
                    with self._state.database.write() as connection:
                        rows = store.find_rows(connection, latest)
                        now_s = time.time()
                        vectors = {
                            store.put_item(connection, item, rows.get(item.id), now_s): item.vectors
                            for item in latest.values()
                        }
                        stored_vectors.put_vectors(connection, loaded.generation.number, vectors)
                        note_changes(connection, vectors)
                        generations.note_variant(connection, loaded.generation.number, self._state.variant)
                    self._state.follow(loaded, vectors)
                    replaced = {row.blob for row in rows.values() if row.blob is not None}
            except BaseException:
                self._state.discard_blobs({digest for digest, _ in pictures})
                raise
            self._state.discard_blobs(replaced)
            return [item.id for item in prepared]

    def delete(self, ids: Sequence[str]) -> int:
        """As `Collection.delete` by ids."""
        wanted = {check_item_id(item_id) for item_id in ids}
        return delete_found(self._state, lambda connection: list(store.find_rows(connection, wanted).values()))
