"""How long the event loop takes to come to a new piece of work, measured whenever metrics are asked for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_WAIT_S = 2.0


class LoopDelay(Collector):
    """Asks the loop to do nothing, and times that. A loop that is idle costs nothing meanwhile.

    Args:
        loop: Which loop.
        wait_s: The most that is told: a loop that hangs must not make metrics hang.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, wait_s: float = _WAIT_S) -> None:
        self._loop = loop
        self._wait_s = wait_s

    def collect(self) -> Iterable[Metric]:
        """One gauge."""
        told = "What a new piece of work waited for the event loop, when metrics were read; 2 where it hangs."
        return [GaugeMetricFamily("twinlens_event_loop_delay_seconds", told, self._measured_s())]

    def _measured_s(self) -> float:
        came_to_it = threading.Event()
        began_s = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(came_to_it.set)
        except RuntimeError:  # it has ended
            return self._wait_s
        return time.monotonic() - began_s if came_to_it.wait(self._wait_s) else self._wait_s
