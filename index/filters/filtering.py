"""Whatever a collection does with filters."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from twinlens.index import store
from twinlens.index.deleting import delete_found
from twinlens.index.errors import InvalidArgument
from twinlens.index.filters import metadata_indexes
from twinlens.index.filters.conditions import ALL, Sql
from twinlens.index.filters.parse import parse
from twinlens.index.filters.sql import condition
from twinlens.index.ids import check_item_id
from twinlens.index.interruption import interruptible
from twinlens.index.item import Item
from twinlens.index.paging import check_limit
from twinlens.index.protocol import Keys
from twinlens.index.state import CollectionState

_DELETED_AT_ONCE = 1_000  # so that other writes get their turn


class Filtering:
    """The work on filters of one collection, behind the methods of `Collection`, where its contract is stated."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state

    def among(self, text: str) -> Keys | None:
        """Ascending keys of all items that match; None: every item does. Callers hold the collection open."""
        return self._matching(text) if text.strip() else None

    def where(self, text: str) -> Sql:
        """The condition of a filter, on whichever item; blank: all of them."""
        return _condition(text) if text.strip() else ALL

    def page(self, after: str, limit: int, text: str) -> list[Item]:
        """As `Collection.list`."""
        behind, most = check_item_id(after) if after else after, check_limit(limit)
        with self._state.use(), self._reading() as connection:
            return store.page_of_items(connection, behind, most, self._state.name, self._indexed(connection, text))

    def count(self, text: str) -> int:
        """As `Collection.count`."""
        with self._state.use(), self._reading() as connection:
            return store.count_items(connection, self._indexed(connection, text))

    def delete(self, text: str) -> int:
        """As `Collection.delete` with a filter."""
        if not text.strip():
            raise InvalidArgument("a blank filter deletes nothing: name ids, or give a filter that says which items")
        where = self.where(text)
        with self._state.use():
            matching = self._matching(text)  # no other write waits while they are looked for
        return sum(
            self._delete_some(where, matching[start : start + _DELETED_AT_ONCE])
            for start in range(0, len(matching), _DELETED_AT_ONCE)
        )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection on which all items may be looked at, for as long as somebody waits for the answer."""
        state = self._state
        with state.database.read() as connection, interruptible(connection, state.closing, state.name):
            yield connection

    def _matching(self, text: str) -> Keys:
        matching = self._state.matching
        through = matching.now()
        with self._reading() as connection:
            return matching.keys(connection, through, self._indexed(connection, text), self.where(text))

    def _indexed(self, connection: sqlite3.Connection, text: str) -> Sql:
        return _condition(text, frozenset(metadata_indexes.listed(connection))) if text.strip() else ALL

    def _delete_some(self, where: Sql, keys: Keys) -> int:
        """Deletes those of them that still match, in one transaction."""
        return delete_found(self._state, lambda connection: store.rows_where(connection, where, keys))

    def add_index(self, path: str) -> str:
        """As `Collection.add_metadata_index`."""
        with self._state.use(), self._state.writing, self._state.database.write() as connection:
            return metadata_indexes.add(connection, path)

    def remove_index(self, path: str) -> None:
        """As `Collection.remove_metadata_index`."""
        with self._state.use(), self._state.writing, self._state.database.write() as connection:
            metadata_indexes.remove(connection, path)

    def indexes(self) -> list[str]:
        """As `Collection.metadata_indexes`."""
        with self._state.use(), self._state.database.read() as connection:
            return list(metadata_indexes.listed(connection).values())


@lru_cache(maxsize=256)
def _condition(text: str, indexed: frozenset[tuple[str, ...]] = frozenset()) -> Sql:
    return condition(parse(text), indexed)
