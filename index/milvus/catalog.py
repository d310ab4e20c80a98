"""All collections of a Milvus that servers share."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterator
from typing import NoReturn

from twinlens.index.errors import CollectionError, CollectionExists, CollectionNotFound, InvalidArgument, NotOffered
from twinlens.index.ids import check_collection_id
from twinlens.index.kinds.kind import Kind, check_kind
from twinlens.index.milvus.address import parse_address
from twinlens.index.milvus.collection import MilvusCollection
from twinlens.index.milvus.connection import CALL_S, MilvusConnection
from twinlens.index.milvus.layout import collection_of, generation_of
from twinlens.index.milvus.state import MilvusState
from twinlens.index.operations.backup_place import BackupPlace
from twinlens.index.paging import check_limit


class MilvusCatalog:
    """A `CatalogLike`: collections that live in Milvus, with pictures beside it. Any number of servers share them."""

    def __init__(self, address: str, *, pictures: str, token: str = "", kind: Kind = Kind.AUTO) -> None:
        """Connects.

        Args:
            address: `milvus:URI`; see `parse_address`.
            pictures: A folder or an fsspec address that all servers reach.
            token: What Milvus asks for, if anything.
            kind: Over the vectors of collections that are created without saying so; `auto`: `hnsw` on a server.

        Raises:
            InvalidArgument: an address is not one.
            EngineUnavailable: pymilvus is not installed, or Milvus cannot be reached.
        """
        self._connection = MilvusConnection(parse_address(address), token=token)
        self._place = BackupPlace(pictures, holds="pictures")
        self._kind = kind
        self._open: dict[str, MilvusCollection] = {}
        self._changing = threading.Lock()
        self._closed = False
        self._client = self._connection.open()

    def create(
        self,
        id: str,  # noqa: A002 - the callers' word
        *,
        space_id: str,
        dimension: int,
        kind: Kind | None = None,
    ) -> MilvusCollection:
        """As `Catalog.create`."""
        check_collection_id(id)
        if not space_id or dimension < 1:
            raise InvalidArgument(f"a collection needs a space and a dimension from 1, not {dimension}")
        asked = self._settled(check_kind(self._kind if kind is None else kind))
        with self._changing:
            self._check_open()
            if id in self._ids():
                raise CollectionExists(f"there is a collection {id} already")
            state = MilvusState(self._connection, id, self._place, asked)
            try:
                self._drop_parts(state)  # of one that was half made or half removed
                state.items.create()
                generation = state.generations.create(space_id, dimension)
                try:
                    state.generations.activate(generation.number, first=True)
                except CollectionError as error:
                    if id in self._ids():
                        raise CollectionExists(f"there is a collection {id} already") from error
                    raise
            finally:
                state.close()
            return self._opened(id)

    def get(self, id: str) -> MilvusCollection:  # noqa: A002
        """As `Catalog.get`."""
        check_collection_id(id)
        self._check_open()
        there = id in self._ids()
        if there and (found := self._open.get(id)) is not None:
            return found
        with self._changing:
            self._check_open()
            if not there:
                self._forget(id)
                raise CollectionNotFound(f"there is no collection {id}")
            return self._opened(id)

    def opened(self, id: str) -> None:  # noqa: A002, ARG002
        """As `Catalog.opened`: another server may have deleted it, so Milvus has to be asked."""
        return

    def list(self, *, after: str = "", limit: int = 100) -> builtins.list[MilvusCollection]:
        """As `Catalog.list`."""
        check_limit(limit)
        with self._changing:
            self._check_open()
            return [self._opened(id_) for id_ in [id_ for id_ in self._ids() if id_ > after][:limit]]

    def entries(self, *, after: str = "", limit: int = 100) -> builtins.list[MilvusCollection]:
        """As `Catalog.entries`; Milvus keeps its files sound by itself."""
        return self.list(after=after, limit=limit)

    def delete(self, id: str) -> None:  # noqa: A002
        """As `Catalog.delete`."""
        check_collection_id(id)
        with self._changing:
            self._check_open()
            self._forget(id)
            if id not in self._ids():
                raise CollectionNotFound(f"there is no collection {id}")
            state = MilvusState(self._connection, id, self._place, self._settled(self._kind))
            try:
                with self._connection.clear_errors():
                    self._client.drop_alias(state.layout.active, timeout=CALL_S)
                self._drop_parts(state)
                state.pictures.remove_everything()
            finally:
                state.close()

    def restore(
        self,
        root: str,
        backup: str,
        *,
        id: str = "",  # noqa: A002
        replace: bool = False,
    ) -> Iterator[NoReturn]:
        """Not offered: Milvus has a tool of its own."""
        del root, backup, id, replace
        raise NotOffered("collections in Milvus are restored by its own tool, milvus-backup; or import an export")

    def close(self) -> None:
        """Closes all collections, once running calls are done."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
            for id_ in [*self._open]:
                self._forget(id_)
            self._connection.release()

    def _ids(self) -> builtins.list[str]:
        with self._connection.clear_errors():
            aliases = self._client.list_aliases(timeout=CALL_S)["aliases"]
        return sorted(id_ for alias in aliases if (id_ := collection_of(alias)) is not None)

    def _opened(self, collection_id: str) -> MilvusCollection:
        """Opens a collection or returns the one that is open; the caller holds the lock."""
        found = self._open.get(collection_id)
        if found is None:
            state = MilvusState(self._connection, collection_id, self._place, self._settled(self._kind))
            found = self._open[collection_id] = MilvusCollection(state, collection_id)
        return found

    def _forget(self, collection_id: str) -> None:
        found = self._open.pop(collection_id, None)
        if found is not None:
            found.close()

    def _drop_parts(self, state: MilvusState) -> None:
        # What an alias points at first: Milvus refuses to drop it, should another server have made the collection.
        for name in sorted(state.generations.parts(), key=lambda name: generation_of(name) is None):
            with self._connection.clear_errors():
                self._client.drop_collection(name, timeout=CALL_S)

    def _settled(self, kind: Kind) -> Kind:
        if kind is not Kind.AUTO:
            return kind
        return Kind.FLAT if self._connection.address.local else Kind.HNSW

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError("the catalog is closed")
