"""Milvus under collections whose truth is a database."""

from __future__ import annotations

import threading
import uuid

from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.address import parse_address
from twinlens.index.milvus.connection import MilvusConnection
from twinlens.index.milvus.vector_index import MilvusIndex
from twinlens.index.milvus.vectors import MilvusVectors

_PREFIX = "twinlens_engine_"


class MilvusEngine:
    """Makes empty engines: an `EngineFactory` for `Catalog`.

    What they hold is derived, as it is with FAISS: a collection fills them from its database when it is opened, and
    closing one removes its Milvus collection.
    """

    def __init__(self, address: str, *, token: str = "", kind: Kind = Kind.AUTO) -> None:
        """Remembers where Milvus is; it is opened with the first engine and closed with the last.

        Args:
            address: `milvus:URI`; see `parse_address`.
            token: What the server asks for, if anything.
            kind: What Milvus keeps over the vectors. `auto`: `flat` in Milvus Lite, `hnsw` on a server.

        Raises:
            InvalidArgument: the address is not one.
        """
        self._connection = MilvusConnection(parse_address(address), token=token)
        self._local = self._connection.address.local
        automatic = Kind.FLAT if self._local else Kind.HNSW
        self._kind = automatic if kind is Kind.AUTO else kind
        self._tidied = False
        self._lock = threading.Lock()

    def __call__(self, dimension: int) -> _OwnIndex:
        """Makes an empty engine.

        Raises:
            EngineUnavailable: pymilvus is not installed, or the server or file cannot be opened.
        """
        client = self._connection.open()
        try:
            with self._lock:
                if self._local and not self._tidied:
                    self._tidy()
                self._tidied = True
            name = f"{_PREFIX}{uuid.uuid4().hex}"
            vectors = MilvusVectors(self._connection, client, name, dimension, self._kind)
            vectors.create()
        except BaseException:
            self._connection.release()
            raise
        return _OwnIndex(vectors, self._connection)

    def close(self) -> None:
        """Lets go of Milvus, also while engines are open; these answer no more."""
        self._connection.close()

    def _tidy(self) -> None:
        """Removes what a crash left; a file of Milvus Lite has one process at a time."""
        client = self._connection.open()
        try:
            with self._connection.clear_errors():
                for name in client.list_collections():
                    if name.startswith(_PREFIX):
                        client.drop_collection(name)
        finally:
            self._connection.release()


class _OwnIndex(MilvusIndex):
    """One that nobody else knows of: its collection goes with it."""

    def __init__(self, vectors: MilvusVectors, connection: MilvusConnection) -> None:
        super().__init__(vectors, alone=connection.address.local)
        self._connection = connection

    def close(self) -> None:
        """Removes the collection."""
        if self._closed:
            return
        super().close()
        try:
            self._vectors.drop()
        finally:
            self._connection.release()
