"""Health: red until a canary came through encoder and index, and red again as soon as one does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from grpc_health.v1 import health, health_pb2

from twinlens.server.core.app import Application
from twinlens.server.core.canary import canary_picture, fly

log = logging.getLogger(__name__)


class Health:
    """Keeps grpc.health.v1 in step with the canary.

    Args:
        app: What is watched.
        services: Full names of the services; "" (the server as a whole) is added.
    """

    def __init__(self, app: Application, services: Sequence[str]) -> None:
        self.servicer = health.aio.HealthServicer()
        self._app = app
        self._services = ["", *services]
        self._picture = canary_picture()
        self._task: asyncio.Task[None] | None = None
        self._serving = False

    async def start(self) -> None:
        """Flies the first canary, then one every interval.

        Raises:
            Exception: what the first canary met.
        """
        await self._set(serving=False)
        await fly(self._app, self._picture, self._app.settings.canary_timeout_s)
        await self._set(serving=True)
        self._task = asyncio.create_task(self._watch(), name="twinlens-canary")

    async def check(self) -> bool:
        """Flies one canary and sets the statuses by it."""
        try:
            await fly(self._app, self._picture, self._app.settings.canary_timeout_s)
        except Exception:
            log.exception("the canary failed; health is NOT_SERVING until one comes through")
            await self._set(serving=False)
            return False
        await self._set(serving=True)
        return True

    async def stop(self) -> None:
        """Goes red for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.servicer.enter_graceful_shutdown()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._app.settings.canary_interval_s)
            await self.check()

    async def _set(self, *, serving: bool) -> None:
        if serving and not self._serving:
            log.info("serving")
        self._serving = serving
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self.servicer.set(service, status)
