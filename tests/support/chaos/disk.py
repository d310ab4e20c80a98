"""The disk of the data folder filling up under load, and having room again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import grpc

from tests.support.chaos.callers import Callers, assert_kept, calling
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.server_process import server_process
from tests.support.small_disk import small_disk

_MIB = 48


async def disk_full(folder: Path) -> Outcome:
    """Fills the disk, kills the server on it, starts it on it, and makes room.

    Raises:
        AssertionError: something acknowledged is gone, searches fail meanwhile, or writes go on failing afterwards.
    """

    with small_disk(folder / "disk", mib=_MIB) as disk, server_process(disk.root / "data", notes=folder) as server:
        tolerated = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        async with calling(server.address, tolerated=tolerated) as callers:
            await callers.store(4)
            await asyncio.to_thread(disk.fill)
            await callers.are_told(grpc.StatusCode.INTERNAL.name, 6)
            await callers.are_answered(24)  # those who embed and search
            assert await server.serving()
            disk.make_room()
            backs_s = [await _stored(callers)]
            await asyncio.to_thread(disk.fill)
            await callers.are_told(grpc.StatusCode.INTERNAL.name, 3)
            server.kill()
            # It says so where it cannot start; it must start once there is room.
            disk.make_room()
            await asyncio.to_thread(server.start)
            backs_s.append(await _stored(callers))
        await server.comes_to_rest()
        kept = await assert_kept(server.address, callers)
        assert server.end() == 0
    return Outcome(
        "disk full while serving, room again; full again and `kill -9`",
        Counter(callers.told),
        1000 * max(backs_s),
        f"searches and embeddings answered meanwhile, health green; all of {kept:,} acknowledged items",
    )


async def _stored(callers: Callers) -> float:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await callers.store(1)
    seconds = loop.time() - start_s
    await callers.store(5)
    return seconds
