"""The network around the core: services, health, reflection, ports and a graceful end."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from twinlens.server.access.authority import Authority
from twinlens.server.access.certificates import CertificateError, Certificates, certificate_files
from twinlens.server.access.exposure import warnings
from twinlens.server.access.token_file import TokenFileError
from twinlens.server.core.active import StartError
from twinlens.server.core.app import Application
from twinlens.server.core.forked import ForkedProcess, OwnProcess
from twinlens.server.descriptors import most_connections
from twinlens.server.health import Health
from twinlens.server.services.call_places import CallPlaces
from twinlens.server.services.call_watch import CallWatch
from twinlens.server.services.caller_interceptor import CallerInterceptor
from twinlens.server.services.classification import ClassificationService
from twinlens.server.services.collection import CollectionService
from twinlens.server.services.collection_operations import CollectionOperationsService
from twinlens.server.services.embedding import EmbeddingService
from twinlens.server.services.interceptor import CallInterceptor
from twinlens.server.services.model import ModelService
from twinlens.server.services.open_calls import OpenCalls
from twinlens.server.services.search import SearchService
from twinlens.server.settings import Settings
from twinlens.server.spans import Spans
from twinlens.v1 import (
    classification_pb2,
    classification_pb2_grpc,
    collection_operations_pb2,
    collection_operations_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    embedding_pb2,
    embedding_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    search_pb2,
    search_pb2_grpc,
)

log = logging.getLogger(__name__)

# Whoever connects and does not get to his first call by then is let go; gRPC would wait for two minutes.
_HANDSHAKE_MS = 20_000

SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (embedding_pb2, "EmbeddingService"),
        (search_pb2, "SearchService"),
        (classification_pb2, "ClassificationService"),
        (collection_pb2, "CollectionService"),
        (collection_operations_pb2, "CollectionOperationsService"),
        (model_pb2, "ModelService"),
    )
)

_CALLS_WITHOUT_ITEMS = 256
_OTHER_CALLS = 1024
_STREAMS_GO_ON = 0.5  # of the grace


class GrpcServer:
    """A grpc.aio server around an application. `start` it, `stop` it once; it closes the application.

    Args:
        app: What is served.
        address: "host:port" (port 0 picks one) or "unix:/path".
        spans: Makes spans of calls; whoever made it closes it, after the server. None: there are none.
    """

    def __init__(self, app: Application, address: str, *, spans: Spans | None = None) -> None:
        self._app = app
        self._process = OwnProcess("the server")
        self._address = address
        # A socket in a folder of this user's: whoever reaches it may do everything, and nobody is on the way.
        self._private = address.startswith("unix:")
        self.health = Health(app, SERVICES)
        self.address = address
        # More calls than items are admitted could only wait, holding what they were sent; the rest is for calls that
        # bring none.
        most_calls = app.settings.max_items_in_flight + _CALLS_WITHOUT_ITEMS
        self._places = CallPlaces(most_calls, app.telemetry.refused.labels("calls"))
        open_calls = OpenCalls(app.telemetry.refused.labels("calls"))
        self._authority = Authority(app.settings, app.telemetry, private=self._private)
        self._certificates: Certificates | None = None
        self._server = grpc.aio.server(
            interceptors=(
                _call_watch(app, spans),
                CallInterceptor(app.settings.max_message_bytes, self._places),
                CallerInterceptor(self._authority, open_calls),
            ),
            options=_options(app.settings),
            # Health and reflection take no places. What gRPC refuses itself comes without a hint.
            maximum_concurrent_rpcs=most_calls + open_calls.most + _OTHER_CALLS,
        )
        embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(EmbeddingService(app), self._server)
        search_pb2_grpc.add_SearchServiceServicer_to_server(SearchService(app), self._server)
        classification_pb2_grpc.add_ClassificationServiceServicer_to_server(ClassificationService(app), self._server)
        collection_pb2_grpc.add_CollectionServiceServicer_to_server(CollectionService(app), self._server)
        collection_operations_pb2_grpc.add_CollectionOperationsServiceServicer_to_server(
            CollectionOperationsService(app), self._server
        )
        model_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(app), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health.service, self._server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    @property
    def running_calls(self) -> int:
        """How many calls run now, but for health and reflection."""
        return self._places.running

    async def start(self) -> None:
        """Binds, answers calls, and returns once the first canary came through.

        Raises:
            StartError: if tokens or certificates cannot be read, the address cannot be bound, the canary fails, or this
                is a fork of the process that made it.
        """
        try:
            self._process.check()
        except ForkedProcess as error:
            raise StartError(error.message) from None
        try:
            self._authority.open()
            if not self._private and (files := certificate_files(self._app.settings)) is not None:
                self._certificates = Certificates(files)
        except (TokenFileError, CertificateError) as error:
            raise StartError(str(error)) from None
        self.address = self._bind()
        if not self._private:
            for warning in warnings(self._app.settings):
                log.warning("%s", warning)
        await self._server.start()
        try:
            await self.health.start()
        except TimeoutError:
            limit_s = self._app.settings.canary_timeout_s
            raise StartError(
                f"the encoder does not answer within {limit_s:g} s (more: TWINLENS_CANARY_TIMEOUT_S)"
            ) from None
        except Exception as error:
            raise StartError(f"the encoder does not answer: {error}") from error

    def reload(self) -> None:
        """Looks at the file of tokens now. Certificates are looked at for every connection."""
        self._authority.reload()

    async def stop(self, grace_s: float) -> None:
        """Goes red, refuses new calls, lets running ones finish within the grace, closes the application.

        Streams whose callers have more to send are ended after a part of the grace, in which others come to their end.
        """
        await self.health.stop()
        loop = asyncio.get_running_loop()
        draining = loop.call_later(_STREAMS_GO_ON * grace_s, self._app.draining.set)
        await self._server.stop(grace_s)
        draining.cancel()
        await self._app.close()

    def _bind(self) -> str:
        if not self._private:
            _refuse_taken(self._address)
        try:
            if self._certificates is None:
                port = self._server.add_insecure_port(self._address)
            else:
                port = self._server.add_secure_port(self._address, self._certificates.credentials)
        except RuntimeError:
            port = 0
        if self._private:
            if not port:
                raise StartError("the private socket of the local server cannot be made")
            return self._address
        if not port:
            raise _cannot_bind(self._address, "the address cannot be used")
        return f"{self._address.rpartition(':')[0]}:{port}"


def _call_watch(app: Application, spans: Spans | None) -> CallWatch:
    """Every call is a line in a log that programs read; people see it where they look for faults."""
    level = logging.INFO if app.settings.log_format == "json" else logging.DEBUG
    return CallWatch(app.telemetry, SERVICES, log_level=level, spans=spans)


def _refuse_taken(address: str) -> None:
    """Tries the address with a plain socket first: gRPC reports a failed bind in many lines on stderr."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, target = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen(1)
    except socket.gaierror:
        raise _cannot_bind(address, "the host is not known") from None
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is in use; choose another with --port, or --port 0 for any" if taken else str(error.strerror)
        raise _cannot_bind(address, why) from None


def _cannot_bind(address: str, why: str) -> StartError:
    return StartError(f"cannot listen on {address}: {why}")


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # Two servers on one port would split the calls between them without a word.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients that ping often (1 s) are kept; this is the option that has an effect.
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    ]
