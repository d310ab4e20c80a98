"""Ending a process that does not end by itself."""

from __future__ import annotations

import logging
import os
import threading

log = logging.getLogger(__name__)


class LastResort:
    """Ends the process by force when a graceful end takes too long: a thread that hangs in a disk cannot be joined.

    Nothing acknowledged is lost by it, which is on disk before it is acknowledged.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()

    def arm(self, after_s: float) -> None:
        """The process ends in so many seconds with exit code 1, unless it is disarmed."""
        threading.Thread(target=self._wait, args=(after_s,), name="twinlens-last-resort", daemon=True).start()

    def disarm(self) -> None:
        """It ended well."""
        self._ended.set()

    def _wait(self, after_s: float) -> None:
        if not self._ended.wait(after_s):
            log.critical("the server does not come to its end within %.0f s: it is ended by force", after_s)
            os._exit(1)
