"""A client of Milvus, and its errors in the room's own words."""

from __future__ import annotations

import importlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinlens.index.errors import CollectionError, EngineUnavailable, EngineUnreachable
from twinlens.index.milvus.address import MilvusAddress

# Without a limit pymilvus tries an unreachable server again for many minutes.
_CONNECT_S = 10.0
CALL_S = 60.0

# pymilvus has one kind of exception for most of what goes wrong.
_UNREACHABLE = ("DEADLINE_EXCEEDED", "UNAVAILABLE", "Fail connecting")

# Milvus Lite has one server a file, whoever of this process uses it.
_lite_lock = threading.Lock()
_lite_users: Counter[str] = Counter()


class MilvusConnection:
    """One client for all who use an address; it is there from the first `open` to the last `release`."""

    def __init__(self, address: MilvusAddress, *, token: str = "") -> None:
        """Remembers where to connect to.

        Args:
            address: The server or file.
            token: `user:password` or an API key, where the server asks for one.
        """
        self.address = address
        self._token = token
        self._lock = threading.Lock()
        self._users = 0
        self._client: Any = None

    def open(self) -> Any:
        """The client. Every `open` wants a `release`.

        Raises:
            EngineUnavailable: pymilvus is not installed, or the server or file cannot be opened.
        """
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            self._users += 1
            return self._client

    def release(self) -> None:
        """Closes the client once nobody uses it, and with it Milvus Lite."""
        with self._lock:
            self._users -= 1
            if self._users <= 0:
                self._disconnect()

    def close(self) -> None:
        """Closes the client, whoever uses it."""
        with self._lock:
            self._users = 0
            self._disconnect()

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns errors of a call into ours.

        Raises:
            EngineUnreachable: the server does not answer.
            CollectionError: whatever else Milvus complains about.
        """
        exceptions = importlib.import_module("pymilvus.exceptions")
        gone = EngineUnreachable("Milvus does not answer; try again later")  # callers of a server may read this
        try:
            yield
        except (exceptions.MilvusUnavailableException, importlib.import_module("grpc").RpcError) as error:
            raise gone from error
        except exceptions.MilvusException as error:
            if any(sign in str(error) for sign in _UNREACHABLE):
                raise gone from error
            raise CollectionError(f"Milvus at {self.address}: {_first_line(error)}") from error

    def _connect(self) -> Any:
        try:
            pymilvus = importlib.import_module("pymilvus")
            if self.address.local:
                importlib.import_module("milvus_lite")
        except ImportError as error:
            raise EngineUnavailable(
                "Milvus is not installed: install twinlens with it, as in pip install 'twinlens[milvus]'",
            ) from error
        for library in ("pymilvus", "milvus_lite"):  # what they log as errors they raise as well
            logging.getLogger(library).setLevel(logging.CRITICAL)
        try:
            if self.address.local:
                Path(self.address.uri).parent.mkdir(parents=True, exist_ok=True)
                with _lite_lock:
                    client = pymilvus.MilvusClient(uri=self.address.uri, timeout=_CONNECT_S)
                    _lite_users[self.address.uri] += 1
                    return client
            return pymilvus.MilvusClient(uri=self.address.uri, token=self._token, timeout=_CONNECT_S)
        except OSError as error:
            raise EngineUnavailable(f"{self.address} cannot be opened: {error.strerror or 'no permission'}") from error
        except pymilvus.MilvusException as error:
            if self.address.local:
                raise EngineUnavailable(
                    f"Milvus Lite cannot open {self.address}: another process has it, or it is damaged",
                ) from error
            raise self._unreachable() from error

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.close()
        if self.address.local:
            lite = importlib.import_module("milvus_lite.server_manager")
            with _lite_lock:
                _lite_users[self.address.uri] -= 1
                if not _lite_users[self.address.uri]:
                    lite.server_manager_instance.release_server(self.address.uri)

    def _unreachable(self) -> EngineUnreachable:
        return EngineUnreachable(f"Milvus at {self.address} cannot be reached: see that it runs, and check its address")


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", "") or str(error)
    return " ".join(str(text).split())[:200]
