"""The load generator, a process of its own: `python -m bench.serving.generate ORDER` prints what it saw as JSON.

ORDER is a JSON object: `target` (twinlens or infinity), `address`, `work`, `photos`, `model` (infinity's), `pid` of the
server, `metrics` (its page, or null), `timeout_s`, `tower` (whose batches are looked at), and either `callers`,
`warm_s` and `seconds` (a closed loop; `sample_s` for memory over calls) or `phases` (an open loop; `slow_s` for the
time to recover, counted from the start of the last phase).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.serving.figures import Done, recovery_s, summary  # noqa: E402
from bench.serving.loops import Call, Phase, closed_loop, open_loop  # noqa: E402
from bench.serving.processes import Usage, usage_of  # noqa: E402
from bench.serving.prometheus_page import of_towers, read_counts  # noqa: E402
from bench.serving.targets import Target, open_target  # noqa: E402

_MOST_CONNECTIONS = 64
_OPEN_CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class _Look:
    """At the server and at this process, at one moment."""

    at_s: float
    usage: Usage
    counts: dict[str, float]
    own_cpu_s: float


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carries out an order."""
    return await (_open(order) if "phases" in order else _closed(order))


async def _closed(order: dict[str, Any]) -> dict[str, Any]:
    connections = min(order["callers"], _MOST_CONNECTIONS)
    target = open_target(order, connections)
    looks: list[_Look] = []
    samples: list[tuple[int, float]] = []
    answered = [0]

    async def watch() -> None:
        await asyncio.sleep(order["warm_s"])
        looks.append(await _look(order))
        await asyncio.sleep(order["seconds"])
        looks.append(await _look(order))

    async def sample(every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            samples.append((answered[0], usage_of(order["pid"]).rss_mib))

    watching = asyncio.create_task(watch())
    sampling = asyncio.create_task(sample(order["sample_s"])) if order.get("sample_s") else None
    try:
        call = _counted(_calls(target, order["timeout_s"]), answered)
        calls = await closed_loop(call, order["callers"], order["warm_s"] + order["seconds"], connections)
        await watching
    finally:
        watching.cancel()
        if sampling is not None:
            sampling.cancel()
        await target.close()
    found = _between(order, calls, *looks, by_due=False)
    return {**found, "callers": order["callers"], "calls": answered[0], "samples": samples}


async def _open(order: dict[str, Any]) -> dict[str, Any]:
    phases = [Phase(**phase) for phase in order["phases"]]
    target = open_target(order, _OPEN_CONNECTIONS)
    looks: list[_Look] = []

    async def began(_: int) -> None:
        looks.append(await _look(order))

    try:
        calls = await open_loop(_calls(target, order["timeout_s"]), phases, _OPEN_CONNECTIONS, began)
    finally:
        await target.close()
    found: dict[str, Any] = {
        phase.name: _between(order, calls, before, after, by_due=True)
        for phase, before, after in zip(phases, looks, looks[1:], strict=False)
    }
    if "slow_s" in order:
        found["recovery_s"] = recovery_s(calls, looks[-2].at_s, order["slow_s"])
    return found


def _calls(target: Target, timeout_s: float) -> Call:
    return partial(_call, target, timeout_s)


async def _call(target: Target, timeout_s: float, number: int, connection: int) -> str:
    return await target.call(number, connection, timeout_s)


def _counted(call: Call, answered: list[int]) -> Call:
    async def counted(number: int, connection: int) -> str:
        outcome = await call(number, connection)
        answered[0] += 1
        return outcome

    return counted


async def _look(order: dict[str, Any]) -> _Look:
    at_s, usage = time.perf_counter(), usage_of(order["pid"])
    counts = await asyncio.to_thread(read_counts, order["metrics"]) if order.get("metrics") else {}
    return _Look(at_s, usage, counts, time.process_time())


def _between(order: dict[str, Any], calls: list[Done], before: _Look, after: _Look, *, by_due: bool) -> dict[str, Any]:
    found = summary(calls, before.at_s, after.at_s, by_due=by_due)
    cpu_s = after.usage.cpu_s - before.usage.cpu_s
    found |= {"server_cpu_s": cpu_s, "generator_cpu_s": after.own_cpu_s - before.own_cpu_s}
    found |= {"rss_mib": after.usage.rss_mib, "pipeline": of_towers(before.counts, after.counts, order["tower"])}
    if found["answered"]:
        found["cpu_ms_per_call"] = cpu_s / found["answered"] * 1000
    return found


def main(argument: str) -> None:
    """Prints one line of JSON."""
    with suppress(KeyboardInterrupt):
        print(json.dumps(asyncio.run(run(json.loads(argument)))))


if __name__ == "__main__":
    main(sys.argv[1])
