"""The standard health service, grpc.health.v1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from twinlens.server.services.interceptor import Context


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package ships no types
    """Tells whether the server serves. All services stand and fall together, so they have one status.

    Unlike the package's own, a watcher who does not read holds up nobody, and those who watch do not hold up the
    server's end: they are told NOT_SERVING, and their streams end.

    Args:
        services: Full names; "" (the server as a whole) is added.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", *services))
        self._status: int = health_pb2.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()
        self._ended = False

    def set(self, *, serving: bool) -> None:
        """Sets the status of everything; after `end` nothing."""
        if not self._ended:
            response = health_pb2.HealthCheckResponse
            self._tell(response.SERVING if serving else response.NOT_SERVING)

    def end(self) -> None:
        """NOT_SERVING from now on."""
        self._ended = True
        self._tell(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def Check(self, request: Any, context: Context) -> Any:  # noqa: N802 - the wire's name, as below
        """The status of a service."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return health_pb2.HealthCheckResponse(status=self._status)

    async def List(self, request: Any, context: Context) -> Any:  # noqa: N802
        """The statuses of all services."""
        del request, context
        status = health_pb2.HealthCheckResponse(status=self._status)
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._services, status))

    async def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:  # noqa: N802
        """The status of a service now and whenever it changes; SERVICE_UNKNOWN for one that there is not."""
        del context
        told: int | None = None
        while True:
            changed, ended = self._changed, self._ended
            known = request.service in self._services
            status = self._status if known else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                yield health_pb2.HealthCheckResponse(status=status)
                told = status
            if ended:
                return
            await changed.wait()

    def _tell(self, status: int) -> None:
        self._status = status
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
