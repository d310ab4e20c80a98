"""Callers who wait for their answers, and callers who come whenever they come."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.serving.figures import Done

Call = Callable[[int, int], Awaitable[str]]
"""Number of the call, and of the connection it goes over."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Calls that come at random times, so many a second on average (a Poisson process)."""

    name: str
    per_s: float
    seconds: float


async def closed_loop(call: Call, callers: int, seconds: float, connections: int) -> list[Done]:
    """So many callers, each of whom calls again as soon as it has its answer; the last answers are waited for."""
    numbers = itertools.count()
    done: list[Done] = []
    end_s = time.perf_counter() + seconds

    async def caller(own: int) -> None:
        while (sent_s := time.perf_counter()) < end_s:
            outcome = await call(next(numbers), own % connections)
            done.append(Done(sent_s, sent_s, time.perf_counter(), outcome))

    async with asyncio.TaskGroup() as group:
        for own in range(callers):
            group.create_task(caller(own))
    return done


async def open_loop(
    call: Call,
    phases: Sequence[Phase],
    connections: int,
    began: Callable[[int], Awaitable[None]],
    seed: int = 0,
) -> list[Done]:
    """Calls that come whether or not earlier ones were answered; the last answers are waited for.

    Args:
        call: Makes one.
        phases: One after the other.
        connections: Taken in turns.
        began: Told the number of each phase as it begins, and after the last one how many there were.
        seed: Of the times.
    """
    rng = np.random.default_rng(seed)
    numbers = itertools.count()
    done: list[Done] = []

    async def one(due_s: float) -> None:
        number = next(numbers)
        sent_s = time.perf_counter()
        outcome = await call(number, number % connections)
        done.append(Done(due_s, sent_s, time.perf_counter(), outcome))

    async with asyncio.TaskGroup() as group:
        start_s = time.perf_counter()
        for position, phase in enumerate(phases):
            await began(position)
            end_s = start_s + phase.seconds
            due_s = start_s + rng.exponential(1 / phase.per_s)
            while due_s < end_s:
                wait_s = due_s - time.perf_counter()
                # Where it is late already, answers must still get their turn.
                await asyncio.sleep(max(0.0, wait_s))
                group.create_task(one(due_s))
                due_s += rng.exponential(1 / phase.per_s)
            await asyncio.sleep(max(0.0, end_s - time.perf_counter()))
            start_s = end_s
        await began(len(phases))
    return done
