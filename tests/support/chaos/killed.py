"""`kill -9` of a server under load, again and again, on one data folder."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import grpc
import numpy as np

from tests.support.chaos.callers import assert_kept, calling
from tests.support.chaos.client_stream import client_stream
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.server_process import server_process

# What a caller is told whose connection ends, or finds nobody.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def killed_under_load(folder: Path, *, kills: int = 3, seed: int = 0) -> Outcome:
    """Kills at random moments while callers embed, search and store; the same callers go on after each restart.

    Raises:
        AssertionError: something acknowledged is gone, a call was answered wrongly or never, the server does not come
            back, or a stream of our client ends.
    """
    rng = np.random.default_rng(seed)
    starts_s: list[float] = []
    backs_s: list[float] = []
    with server_process(folder / "data") as server:
        async with calling(server.address, tolerated=_GONE) as callers, client_stream(server.address) as stream:
            for _ in range(kills):
                await callers.store(int(rng.integers(2, 12)))
                # A kill needs no precision: this only spreads them over what is at work.
                await asyncio.sleep(rng.uniform(0, 0.02))
                server.kill()
                starts_s.append(await asyncio.to_thread(server.start))
                backs_s.append(await callers.are_answered())
            await callers.store()
        kept = await assert_kept(server.address, callers)
        complaints = server.complaints()
        assert not complaints, complaints
        assert server.end() == 0
    return Outcome(
        f"`kill -9` under load, {kills} times, restarted each time",
        Counter(callers.told),
        1000 * max(backs_s),
        f"all of {kept:,} acknowledged items; a client's stream of {stream.answered:,} texts went on; "
        f"serving {1000 * max(starts_s):,.0f} ms after the start of the process",
    )
