"""A server process that the system stops and lets go on, as a suspended machine or a paused container does."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import grpc

from tests.support.chaos.callers import assert_kept, calling
from tests.support.chaos.health_watch import health_changes
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.server_process import server_process

_TIMEOUT_S = 0.5
_STUCK_S = 1.0


async def stopped_and_continued(folder: Path, *, times: int = 2) -> Outcome:
    """Stops a server under load for longer than a worker may be at one piece of work.

    Raises:
        AssertionError: it does not answer again, takes its workers for stuck, changes its health, or lost something.
    """
    with server_process(folder / "data", stuck_s=_STUCK_S) as server:
        tolerated = (grpc.StatusCode.DEADLINE_EXCEEDED,)
        backs_s: list[float] = []
        async with (
            health_changes(server.address) as changes,
            calling(server.address, tolerated=tolerated, timeout_s=_TIMEOUT_S) as callers,
        ):
            for turn in range(times):
                server.send_signal(signal.SIGSTOP)
                # Each of six callers waits for the deadline of each of its calls, so this is how time is told here.
                most = int(6 * (2 * _STUCK_S / _TIMEOUT_S))
                await callers.are_told(grpc.StatusCode.DEADLINE_EXCEEDED.name, most if turn == 0 else 6)
                server.send_signal(signal.SIGCONT)
                backs_s.append(await callers.are_answered())
        await server.comes_to_rest()
        assert changes == [], "health changed"
        state = await asyncio.to_thread(server.state)
        assert state["replaced"] == 0, "workers that were stopped with all the rest were taken for stuck"
        kept = await assert_kept(server.address, callers)
        assert server.end() == 0
    return Outcome(
        f"SIGSTOP, {2 * _STUCK_S:g} s later SIGCONT, under load",
        Counter(callers.told),
        1000 * max(backs_s),
        f"no worker taken for stuck, health never changed; all of {kept:,} acknowledged items",
    )
