"""Starts load generators and reads what they saw."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.serving.loops import Phase
from bench.serving.twinlens_server import Running

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 60.0
_MORE_S = 120.0


def closed(server: Running, work: str, callers: int, *, warm_s: float, seconds: float, **more: Any) -> dict[str, Any]:
    """So many callers who wait for their answers; see `bench.serving.generate` for what comes back."""
    order = {"callers": callers, "warm_s": warm_s, "seconds": seconds, **_common(server, work), **more}
    return _json_of("bench.serving.generate", order, warm_s + seconds + _MORE_S)


def opened(server: Running, work: str, phases: Sequence[Phase], **more: Any) -> dict[str, Any]:
    """Callers who come at random times; figures by the name of the phase."""
    order = {"phases": [asdict(phase) for phase in phases], **_common(server, work), **more}
    return _json_of("bench.serving.generate", order, sum(phase.seconds for phase in phases) + _MORE_S)


def bare(**order: Any) -> dict[str, Any]:
    """The loop without a server; see `bench.serving.bare_loop`."""
    return _json_of("bench.serving.bare_loop", order, 600.0)


def _common(server: Running, work: str) -> dict[str, Any]:
    return {
        "target": "twinlens",
        "address": server.address,
        "pid": server.pid,
        "metrics": server.metrics,
        "work": work,
        "tower": "text" if work in {"text", "search"} else "image",
        "timeout_s": _TIMEOUT_S,
    }


def _json_of(module: str, order: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """What a module prints of an order.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on stderr.
    """
    command = [sys.executable, "-m", module, json.dumps(order)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=timeout_s)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
