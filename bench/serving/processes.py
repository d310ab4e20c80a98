"""What another process used of the machine, by the system's account."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process since it started.

    Attributes:
        cpu_s: Seconds of all its threads together, in user and kernel mode.
        rss_mib: What is resident now.
    """

    cpu_s: float
    rss_mib: float


def usage_of(pid: int) -> Usage:
    """Reads `/proc`.

    Raises:
        FileNotFoundError: there is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    # The name comes in brackets and may hold anything; user and system time are the 14th and 15th field of all.
    fields = stat.rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    resident = status.partition("VmRSS:")[2].split()
    return Usage(cpu_s, int(resident[0]) / 1024 if resident else 0.0)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
