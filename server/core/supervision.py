"""Looking after the worker threads: stuck and dead ones are told of and replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from twinlens.server.core.patience import Patience
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
# A look that comes so late says that the process was stopped, or got no CPU, and so did the workers.
_PAUSE_S = 4 * LOOK_EVERY_S
# How many times what it usually takes work of a tower may take.
TIMES_USUAL = 3.0
_TIMES_BUSY = 10.0
# Loading a model once more reads gigabytes. What comes late is used all the same.
_TIMES_RENEWING = 15.0


def patience_with(pool: str, stuck_s: float) -> Patience:
    """When work of a pool counts as stuck, given how long work may take that computes nothing.

    A tower may compute in threads of its own, or on another device: its thread is then as still as a stuck one. What
    others do computes on its own thread, and a large picture may take its time: health must not go red for it. Reading
    and writing waits for disks, locks and other machines, so nothing is wrong before all threads wait.
    """
    match pool:
        case "towers":
            return Patience(
                busy_s=stuck_s, blocked_s=stuck_s, times_usual=TIMES_USUAL, renew_s=_TIMES_RENEWING * stuck_s
            )
        case "io":
            return Patience(all_blocked_s=stuck_s)
        case _:
            return Patience(busy_s=_TIMES_BUSY * stuck_s, blocked_s=stuck_s)


class Supervisor:
    """Looks at all workers a few times a second.

    Args:
        pools: The workers.
        stuck_s: See `patience_with`.
        telemetry: Counts those replaced.
        on_trouble: Called when something was wrong, on the event loop.

    Attributes:
        pauses: How often this process stood still as a whole.
    """

    def __init__(
        self, pools: Sequence[WorkerPool], stuck_s: float, telemetry: Telemetry, on_trouble: Callable[[], None]
    ) -> None:
        self.pauses = 0
        self._pools = [
            (pool, patience_with(pool.name, stuck_s), telemetry.workers_replaced.labels(pool.name)) for pool in pools
        ]
        self._on_trouble = on_trouble
        self._looked_s: float | None = None

    async def watch(self) -> None:
        """Looks until it is cancelled."""
        while True:
            try:
                self.look(asyncio.get_running_loop().time())
            except Exception:
                log.exception("the workers could not be looked at")
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self, now_s: float) -> None:
        """Looks once; `now_s` by a clock that only goes forward."""
        gone_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        if gone_s > _PAUSE_S:
            self.pauses += 1
            gone_s = 0.0
        for pool, patience, replaced in self._pools:
            for trouble in pool.look(patience, gone_s):
                log.error("%s", trouble.message)
                if trouble.replaced:
                    replaced.inc()
                self._on_trouble()
