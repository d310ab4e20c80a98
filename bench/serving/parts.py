"""What is measured, a part at a time; each returns plain figures."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.serving.figures import OK, growth_per_thousand
from bench.serving.generator import bare, closed, opened
from bench.serving.infinity_server import MODEL, infinity_server
from bench.serving.loops import Phase
from bench.serving.processes import usage_of
from bench.serving.twinlens_server import Running, Variant, twinlens_server

Figures = dict[str, Any]

BARE_BATCHES = (8, 16, 32)
CALLERS = (1, 16, 64)
MOST_CALLERS = CALLERS[-1]
# Load of the open loop whose tail is looked at, and of what comes before and after a flood.
SHARE_OF_CAPACITY = 0.7
CALM = 0.5
FLOOD = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and on what.

    Attributes:
        seconds: Of one measurement.
        warm_s: Before each.
        photos: Folder of pictures of one size.
        many_sizes: Folder of pictures of all sizes.
        scratch: For servers' folders.
    """

    seconds: float
    warm_s: float
    photos: Path
    many_sizes: Path
    scratch: Path


def say(line: str) -> None:
    """What is being done, for whoever waits."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def by_callers(server: Running, work: str, plan: Plan, **more: Any) -> Figures:
    """A closed loop of 1, 16 and 64 callers."""
    found = {}
    for callers in CALLERS:
        say(f"{work}, {callers} callers")
        found[str(callers)] = _closed(server, work, callers, plan, **more)
    return found


def bare_loop(bundle: Path, variant: Variant, plan: Plan) -> Figures:
    """The session without a server."""
    say(f"bare loop, {variant.name}")
    return bare(
        bundle=str(bundle),
        provider=variant.provider,
        precision=variant.precision,
        photos=str(plan.photos),
        batches=BARE_BATCHES,
        warm_s=plan.warm_s / 2,
        seconds=plan.seconds / 2,
    )


def of_bare(before: Figures, after: Figures) -> Figures:
    """Two runs of the bare loop, one before the server's and one after, as one: means, and the best batch of these."""
    means = {batch: statistics.mean([before["per_s"][batch], after["per_s"][batch]]) for batch in before["per_s"]}
    best = max(means, key=lambda batch: means[batch])
    cpu_ms = statistics.mean([before["cpu_ms"][best], after["cpu_ms"][best]])
    return {
        "threads": before["threads"],
        "decode_ms": statistics.mean([before["decode_ms"], after["decode_ms"]]),
        "per_s": means,
        "best_batch": int(best),
        "best_per_s": means[best],
        "cpu_ms": cpu_ms,
    }


def steady_search(server: Running, capacity_per_s: float, plan: Plan) -> Figures:
    """Searches that come at random, at 70 % of what 64 callers got."""
    say("searches at 70 % of capacity")
    rate = SHARE_OF_CAPACITY * capacity_per_s
    phases = [Phase("warm", rate, plan.warm_s), Phase("steady", rate, 2 * plan.seconds)]
    found: Figures = opened(server, "search", phases)["steady"]
    return {**found, "share": SHARE_OF_CAPACITY}


def overload(server: Running, at_capacity: Figures, plan: Plan) -> Figures:
    """Half of capacity, then three times as much as it can do, then half again.

    Args:
        server: To be flooded.
        at_capacity: What 64 callers who wait got.
        plan: How long.
    """
    say("overload")
    rate = at_capacity["ok_per_s"]
    phases = [
        Phase("before", CALM * rate, max(3.0, plan.seconds / 2)),
        Phase("flood", FLOOD * rate, max(10.0, plan.seconds)),
        Phase("after", CALM * rate, max(6.0, plan.seconds / 2)),
    ]
    found = opened(server, "image", phases, photos=str(plan.photos), slow_s=at_capacity["p99_ms"] / 1000)
    return {
        **found,
        "capacity_per_s": rate,
        "capacity_p99_ms": at_capacity["p99_ms"],
        "goodput": found["flood"]["ok_per_s"] / rate,
        "p99_times": found["flood"].get("p99_ms", float("nan")) / at_capacity["p99_ms"],
    }


def poison(server: Running, plan: Plan) -> Figures:
    """Every tenth picture is none; beside a clean run right before and one right after."""
    clean, bad, again = (
        _closed(server, work, MOST_CALLERS, plan, photos=str(plan.photos)) for work in ("image", "poisoned", "image")
    )
    rate = statistics.mean([clean["ok_per_s"], again["ok_per_s"]])
    return {
        "clean_per_s": rate,
        "good_per_s": bad["ok_per_s"],
        "share": bad["ok_per_s"] / rate,
        "outcomes": bad["outcomes"],
    }


def soak(server: Running, minutes: float, plan: Plan) -> Figures:
    """Pictures of random sizes (some of them none), texts and searches by 16 callers; memory over calls."""
    say(f"soak of {minutes:g} minutes")
    found = closed(
        server,
        "mixed",
        16,
        warm_s=plan.warm_s,
        seconds=60 * minutes,
        photos=str(plan.many_sizes),
        sample_s=max(0.5, 60 * minutes / 1000),
    )
    samples = [(int(calls), float(mib)) for calls, mib in found.pop("samples")]
    return {
        "minutes": minutes,
        "calls": found["calls"],
        "outcomes": found["outcomes"],
        "first_mib": samples[len(samples) // 3][1],
        "last_mib": samples[-1][1],
        "mib_per_1000_calls": growth_per_thousand(samples),
        "samples": samples[:: max(1, len(samples) // 200)],
    }


def cold_start(bundle: Path, variant: Variant, plan: Plan, *, starts: int = 3) -> Figures:
    """From nothing to healthy, and what a server that nobody calls takes of the CPU."""
    say(f"cold start of {bundle.parent.name}")
    taken = []
    idle = 0.0
    for number in range(starts):
        with twinlens_server(plan.scratch / f"start-{bundle.parent.name}", bundle, variant) as server:
            taken.append(server.start_s)
            if number == starts - 1:
                idle = idle_share(server, max(12.0, plan.seconds))
    return {"first_s": taken[0], "start_s": statistics.median(taken), "idle_cpu": idle}


def idle_share(server: Running, seconds: float) -> float:
    """CPU seconds a second while nobody calls; canaries fly."""
    time.sleep(3)  # what starting left to do
    begun_s, before = time.perf_counter(), usage_of(server.pid)
    time.sleep(seconds)
    return (usage_of(server.pid).cpu_s - before.cpu_s) / (time.perf_counter() - begun_s)


def infinity(python: Path, model: Path, plan: Plan) -> Figures:
    """The same pictures and texts at infinity."""
    say("infinity")
    # Its 64 callers wait five seconds for an answer.
    plan = replace(plan, seconds=1.5 * plan.seconds, warm_s=max(6.0, plan.warm_s))
    with infinity_server(python, model, plan.scratch / "infinity.log") as server:
        common = {"target": "infinity", "model": MODEL, "metrics": None}
        return {
            "start_s": server.start_s,
            "image": by_callers(server, "image", plan, photos=str(plan.photos), **common),
            "text": by_callers(server, "text", plan, **common),
        }


def _closed(server: Running, work: str, callers: int, plan: Plan, **more: Any) -> Figures:
    found = closed(server, work, callers, warm_s=plan.warm_s, seconds=plan.seconds, **more)
    if not found["outcomes"].get(OK):
        raise RuntimeError(f"{work}, {callers} callers: nothing was answered well: {found['outcomes']}")
    found.pop("samples", None)
    return found
