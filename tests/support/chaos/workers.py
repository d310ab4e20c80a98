"""Encoders that fail under load: they raise, give nonsense, hang, or end the thread they run in."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import grpc

from tests.support.chaos.callers import OK, Callers, assert_kept, calling
from tests.support.chaos.faulty_encoder import Fault
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.server_process import ServerProcess, server_process
from tests.support.chaos.waiting import eventually

# Of a whole call: what it needs could not be embedded, its worker was replaced, or too much waits.
_TOLERATED = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
# Within which health has to be red.
_RED_WITHIN_S = 5.0


async def worker_fails(folder: Path, fault: Fault) -> Outcome:
    """Makes every batch fail under load until health is red, then mends it.

    Raises:
        AssertionError: a call is never answered, or tells too much; health does not follow; the server does not come
            back by itself; or something acknowledged is gone.
    """
    with server_process(folder / "data") as server:
        async with calling(server.address, tolerated=_TOLERATED) as callers:
            await asyncio.to_thread(server.fail, fault)
            failed = asyncio.create_task(_fail(callers))
            red_s = await eventually("red health", lambda: _red(server), within_s=_RED_WITHIN_S)
            await failed
            await asyncio.to_thread(server.mend)
            green_s = await eventually("green health", server.serving)
            # What still waited when the encoder was mended is answered now or was told that it failed.
            back_s = await callers.are_answered(24)
            replaced = (await asyncio.to_thread(server.state))["replaced"]
        kept = await assert_kept(server.address, callers)
        assert server.end() == 0
    return Outcome(
        f"encoder {fault} in every batch",
        Counter(callers.told),
        1000 * back_s,
        f"red after {red_s:.1f} s, green {green_s:.1f} s after it was mended; workers replaced: {replaced:.0f}; "
        f"all of {kept:,} acknowledged items",
    )


async def _red(server: ServerProcess) -> bool:
    return not await server.serving()


async def _fail(callers: Callers) -> None:
    """Waits until callers were told of it, whichever way."""

    def failures() -> int:
        return sum(count for what, count in callers.told.items() if what != OK)

    before = failures()
    await eventually("a failure told", lambda: failures() > before)
