"""/metrics over HTTP, for Prometheus, from a thread of its own: it answers also while the event loop is held up."""

from __future__ import annotations

import contextlib
import errno
import gzip
import logging
import socket
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from twinlens.server.core.active import StartError

log = logging.getLogger(__name__)

PATH = "/metrics"
# Connections at a time: a few Prometheus servers and a person who looks. For one more the oldest is closed: whoever
# sends a byte now and then must not keep Prometheus out.
_MOST_CONNECTIONS = 8
# For the place of one that was closed to become free.
_PLACE_S = 1.0
_PATIENCE_S = 10.0
_POLL_S = 1.0


class MetricsServer:
    """Serves a registry until it is closed.

    Args:
        registry: What is served.
        host: Address to listen on.
        port: Port; 0 picks a free one.

    Raises:
        StartError: if the address cannot be used, in one line.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._server = _listening(registry, host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="twinlens-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening; what is being answered is not waited for."""
        with contextlib.suppress(OSError):  # wakes the thread, which otherwise looks up every second
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, registry: CollectorRegistry, family: socket.AddressFamily, address: Any) -> None:
        self.registry = registry
        self.address_family = family
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []  # the oldest first
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without asking the name service what this machine is called, as HTTPServer does: that may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, while there are not too many."""
        if not self._places.acquire(blocking=False):
            self._close_oldest()
            if not self._places.acquire(timeout=_PLACE_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open.append(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._give_back(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._give_back(request)

    def _close_oldest(self) -> None:
        with self._lock, contextlib.suppress(OSError, IndexError):  # one that has ended meanwhile, or all have
            self._open[0].shutdown(socket.SHUT_RDWR)

    def _give_back(self, request: socket.socket) -> None:
        with self._lock:
            self._open.remove(request)
        self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has usually gone."""
        del request, client_address
        log.debug("a request for metrics could not be answered")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "twinlens"
    sys_version = ""
    timeout = _PATIENCE_S  # whoever connects and says nothing

    def do_GET(self) -> None:
        """Answers with all metrics."""
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"metrics are at {PATH}\n".encode())
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        try:
            body = encode(self.server.registry)
        except Exception:
            log.exception("the metrics cannot be read")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the metrics cannot be read; the server's log says why\n")
            return
        encoding = None
        if gzip_accepted(self.headers.get("Accept-Encoding", "")):
            body, encoding = gzip.compress(body, compresslevel=1), "gzip"
        self._answer(HTTPStatus.OK, body, content_type, encoding)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """To our log."""
        log.debug("%s asked for metrics: " + format, self.address_string(), *args)  # noqa: G003

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        encoding: str | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if encoding is not None:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _listening(registry: CollectorRegistry, host: str, port: int) -> _Server:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return _Server(registry, family, address)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            why = "the host is not known"
        elif error.errno == errno.EADDRINUSE:
            why = "the port is in use; choose another with --metrics-port, or --metrics-port 0 for any"
        else:
            why = str(error.strerror)
        msg = f"metrics cannot be served on {host}:{port}: {why}"
        raise StartError(msg) from None
