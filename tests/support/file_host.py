"""Serves a folder by HTTP, as a host of shards would, and counts what it is asked for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class FileHost:
    """Attributes:
    address: Of the folder.
    asked: How often each path was.
    answers: Path to how many first times it is answered by `busy`.
    busy: A status.
    authorised: What the requests brought as `Authorization`.
    """

    address: str
    asked: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    busy: int = 503
    authorised: list[str] = field(default_factory=list)


@contextmanager
def file_host(folder: Path) -> Iterator[FileHost]:
    """Serves while the block lasts."""
    host = FileHost("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder), host=host))
    host.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, host: FileHost, **named: Any) -> None:
        self._host = host
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        self._host.asked[self.path] += 1
        if (given := self.headers["Authorization"]) is not None:
            self._host.authorised.append(given)
        if self._host.answers[self.path] > 0:
            self._host.answers[self.path] -= 1
            self.send_error(self._host.busy)
            return
        super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
        pass
