"""Callers who wait, and callers who come at random."""

from __future__ import annotations

import asyncio

import pytest

from bench.serving.figures import OK
from bench.serving.loops import Phase, closed_loop, open_loop


async def test_a_closed_loop_has_so_many_calls_open_and_no_two_alike() -> None:
    open_now, most = 0, 0
    seen: list[int] = []

    async def call(number: int, connection: int) -> str:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        seen.append(number)
        assert connection in {0, 1}
        await asyncio.sleep(0)
        open_now -= 1
        return OK

    done = await closed_loop(call, callers=3, seconds=0.02, connections=2)
    assert most == 3
    assert len(done) == len(seen) == len(set(seen)) > 3


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    answer = asyncio.Event()
    began: list[int] = []
    waiting = 0

    async def call(number: int, connection: int) -> str:
        nonlocal waiting
        waiting += 1
        await answer.wait()
        return OK

    async def at(phase: int) -> None:
        began.append(phase)
        if phase == 2:  # all phases are over, and nothing was answered yet
            assert waiting > 10
            answer.set()

    done = await open_loop(call, [Phase("a", 400, 0.05), Phase("b", 400, 0.05)], 4, at)
    assert began == [0, 1, 2]
    assert len(done) == waiting
    assert all(call.sent_s >= call.due_s for call in done)


async def test_the_rate_of_an_open_loop_is_the_one_asked_for() -> None:
    async def call(number: int, connection: int) -> str:
        return OK

    async def at(phase: int) -> None:
        pass

    done = await open_loop(call, [Phase("a", 20_000, 0.1)], 1, at)
    assert len(done) == pytest.approx(2000, rel=0.15)  # 3 standard deviations of a Poisson process
