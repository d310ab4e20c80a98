"""The wall clock of a server set forwards and backwards under load."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.chaos.callers import assert_kept, calling
from tests.support.chaos.faulty_encoder import Fault
from tests.support.chaos.health_watch import health_changes
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.server_process import ServerProcess, server_process
from tests.support.chaos.waiting import eventually

_DAY_S = 86_400
# Ahead of the true time, one after the other.
JUMPS_S = (_DAY_S, 0, -_DAY_S, 0, 10 * 365 * _DAY_S, 3, -3, 0)


class WallClock:
    """A clock that can be set, for processes started with its `environment`; skips where there is no C compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler to build the clock with")
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / "clock_offset.so"
        source = Path(__file__).with_name("clock_offset.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self._offset = folder / "clock_offset"
        self._offset.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._offset)}

    def set(self, seconds: int) -> None:
        """So far ahead of the true time from now on."""
        with self._offset.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", seconds))


async def clock_jumps(folder: Path) -> Outcome:
    """Sets the clock by seconds, a day and years, and back, each time while calls are inside.

    Raises:
        AssertionError: a call fails, health changes, or a worker counts as stuck.
    """

    clock = WallClock(folder)
    with server_process(folder / "data", environment=clock.environment) as server:
        async with calling(server.address) as callers, health_changes(server.address) as changes:
            for seconds in JUMPS_S:
                await asyncio.to_thread(server.fail, Fault.HANGS)
                await eventually("calls inside", lambda: _inside(server))
                clock.set(seconds)
                await asyncio.to_thread(server.mend)
                await callers.are_answered(18)
            assert changes == [], "health changed"
        state = await asyncio.to_thread(server.state)
        assert state["replaced"] == 0
        kept = await assert_kept(server.address, callers)
        complaints = server.complaints()
        assert not complaints, complaints
        assert server.end() == 0
    return Outcome(
        "wall clock set forwards and backwards, by seconds, a day, ten years",
        Counter(callers.told),
        None,
        f"health never changed; all of {kept:,} acknowledged items",
    )


async def _inside(server: ServerProcess) -> bool:
    return (await asyncio.to_thread(server.state))["items"] >= 2
