"""How long a worker may be at one piece of work before it counts as stuck."""

from __future__ import annotations

import math
import sys
import threading
import time
from dataclasses import dataclass

# A thread that had less than this share of a CPU waits for something, whatever it is at.
_IDLE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """When work counts as stuck.

    Attributes:
        busy_s: After so long, whatever its thread does.
        blocked_s: After so long in which its thread computes nothing.
        all_blocked_s: After so long in which no thread of the pool computes anything, each on one piece of work.
        times_usual: But not before so many times what such work took before, where that is known.
        renew_s: After so long in which a thread makes anew what the one before it used.
    """

    busy_s: float = math.inf
    blocked_s: float = math.inf
    all_blocked_s: float = math.inf
    times_usual: float = 0.0
    renew_s: float = math.inf

    def is_out(self, watch: Watch, usual_s: float) -> bool:
        """Whether a piece of work is stuck that usually takes `usual_s` (0: not known)."""
        least_s = self.times_usual * usual_s
        return watch.watched_s > max(self.busy_s, least_s) or watch.blocked_s > max(self.blocked_s, least_s)


class Watch:
    """How long a thread was seen at one piece of work.

    Time in which nobody looked does not count: a process that was stopped, or got no CPU, is not stuck.

    Attributes:
        piece: The number of the piece of work.
        watched_s: How long it was seen at it.
        blocked_s: How long, at last and without a break, it was seen to compute nothing.
    """

    __slots__ = ("_cpu_s", "blocked_s", "piece", "watched_s")

    def __init__(self) -> None:
        self.piece = -1
        self.watched_s = 0.0
        self.blocked_s = 0.0
        self._cpu_s: float | None = None

    def look(self, piece: int, cpu_s: float | None, seen_s: float) -> None:
        """Tells what the thread is at.

        Args:
            piece: Another number for every piece of work.
            cpu_s: What the thread computed since it started; None: not known, then it is taken to compute.
            seen_s: How long nothing escaped whoever looks.
        """
        if piece != self.piece:
            self.piece, self.watched_s, self.blocked_s = piece, 0.0, 0.0
        else:
            self.watched_s += seen_s
            computed = cpu_s is None or self._cpu_s is None or cpu_s - self._cpu_s > _IDLE_SHARE * seen_s
            self.blocked_s = 0.0 if computed else self.blocked_s + seen_s
        self._cpu_s = cpu_s


def thread_cpu_s(thread: threading.Thread) -> float | None:
    """Seconds that a thread, which must be alive, has computed; None where the system does not tell."""
    if sys.platform != "linux" or thread.ident is None:
        return None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
