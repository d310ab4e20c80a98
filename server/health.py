"""Health: red until a canary came through encoder and index, and red again as soon as one does not."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence

from twinlens.server.core.app import Application
from twinlens.server.core.canary import canary_picture, fly
from twinlens.server.core.supervision import TIMES_USUAL, Supervisor
from twinlens.server.services.health import HealthService

log = logging.getLogger(__name__)

# After a worker was replaced, so many canaries in a row have to come through, so long after each other.
_AFTER_TROUBLE = 2
_RED_INTERVAL_S = 1.0
# Canaries take a hundredth of one CPU at most, however large the model, but fly at least every few intervals.
_PAUSE_FOR_WORK = 100.0
_MOST_INTERVALS = 12.0
_MOST_TIMEOUTS = 12.0


class Health:
    """Keeps grpc.health.v1 in step with the canary and with the workers.

    Args:
        app: What is watched.
        services: Full names of the services; "" (the server as a whole) is added.
    """

    def __init__(self, app: Application, services: Sequence[str]) -> None:
        self.service = HealthService(services)
        self._app = app
        self._picture = canary_picture()
        self._supervisor = Supervisor(app.pools, app.settings.stuck_s, app.telemetry, self._on_trouble)
        self._tasks: list[asyncio.Task[None]] = []
        self._serving = False
        self._troubles = 0
        self._troubled = asyncio.Event()
        self._wanted = 1  # canaries in a row until it is green
        self._came_through = True
        self._took_s = 0.0
        self._least_work_s = math.inf  # of all threads, for one canary: what others do meanwhile counts, too

    async def start(self) -> None:
        """Flies the first canary, then one every interval, and looks after the workers.

        Raises:
            Exception: what the first canary met.
        """
        await self._fly()
        self._wanted = 0
        self._set(serving=True)
        self._tasks = [
            asyncio.create_task(self._watch(), name="twinlens-canary"),
            asyncio.create_task(self._supervisor.watch(), name="twinlens-supervisor"),
        ]

    async def check(self) -> bool:
        """Flies one canary, sets the statuses by it, and returns whether all is well."""
        troubles = self._troubles
        try:
            await self._fly_unless_paused()
        except Exception:
            log.exception("the canary failed; health is NOT_SERVING until one comes through")
            self._came_through = False
            self._wanted = max(1, self._wanted)
            self._set(serving=False)
            return False
        self._came_through = True
        if troubles == self._troubles:  # otherwise it says nothing of what is there now
            self._wanted = max(0, self._wanted - 1)
        self._set(serving=not self._wanted)
        return not self._wanted

    async def stop(self) -> None:
        """Goes red for good."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._set(serving=False)
        self.service.end()

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._troubled.wait()
            except TimeoutError:
                pass
            self._troubled.clear()
            await self.check()
            if not self._came_through:
                # What was wrong may have been that very canary: the next one waits, so that others get their turn.
                self._troubled.clear()

    def _pause_s(self) -> float:
        interval_s = self._app.settings.canary_interval_s
        if self._wanted:
            # A canary that hangs takes a worker with it: others get as much time as it did.
            return max(self._took_s, min(_RED_INTERVAL_S, interval_s))
        return max(interval_s, min(_PAUSE_FOR_WORK * self._least_work_s, _MOST_INTERVALS * interval_s))

    async def _fly_unless_paused(self) -> None:
        pauses = self._supervisor.pauses
        try:
            await self._fly()
        except Exception:
            self._supervisor.look(asyncio.get_running_loop().time())
            if self._supervisor.pauses == pauses:
                raise
            log.info("the process stood still, and the canary with it; another one flies")
            await self._fly()

    async def _fly(self) -> None:
        loop = asyncio.get_running_loop()
        began_s, worked_s = loop.time(), time.process_time()
        try:
            await fly(self._app, self._picture, self._timeout_s())
        finally:
            self._took_s = loop.time() - began_s
        self._least_work_s = min(self._least_work_s, time.process_time() - worked_s)
        self._app.telemetry.canary_seconds.observe(self._took_s)

    def _timeout_s(self) -> float:
        """It may have to wait for batches, for which a slow model is not to blame; what hangs is found meanwhile."""
        timeout_s = self._app.settings.canary_timeout_s
        return max(timeout_s, min(TIMES_USUAL * self._app.engine.batch_s, _MOST_TIMEOUTS * timeout_s))

    def _on_trouble(self) -> None:
        self._troubles += 1
        self._wanted = _AFTER_TROUBLE
        self._set(serving=False)
        self._troubled.set()

    def _set(self, *, serving: bool) -> None:
        if serving and not self._serving:
            log.info("serving")
        self._serving = serving
        self._app.telemetry.healthy.set(float(serving))
        self.service.set(serving=serving)
