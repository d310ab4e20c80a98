"""In which order pools of workers do what they are given, and what becomes of it at their end."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tests.server.test_workers import AT_ONCE, NOW, Gate, failure, look_twice
from tests.server.watched import PATIENCE_S, until
from twinlens.server.core import pool as pool_module
from twinlens.server.core.lanes import Priority
from twinlens.server.core.patience import Patience, Watch
from twinlens.server.core.pool import WorkerPool


async def test_bulk_work_of_a_pool_waits_for_interactive_work_but_never_starves() -> None:
    pool, gate = WorkerPool("test", threads=1), Gate()
    done: list[str] = []
    first = pool.submit(NOW, gate)
    await gate.entered()
    waiting = [pool.submit(Priority.BULK, done.append, "bulk")]
    waiting += [pool.submit(NOW, done.append, str(i)) for i in range(6)]
    gate.let_go()
    await asyncio.gather(first, *waiting)
    assert done == ["0", "1", "2", "bulk", "3", "4", "5"]
    await asyncio.to_thread(pool.close)


async def test_a_pool_tells_how_long_a_unit_of_its_slowest_work_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    pool = WorkerPool("test", threads=1, size_of=len)
    assert pool.unit_s == 0.0

    def slow(items: str) -> None:
        now_s[0] += 2.0 * len(items)

    def quick(items: str) -> None:
        now_s[0] += 0.5 * len(items)

    for work in (quick, slow, quick):
        await pool.submit(NOW, work, "four")
    assert pool.unit_s == pytest.approx(2.0)
    await asyncio.to_thread(pool.close)


async def test_one_piece_of_work_during_which_the_process_was_stopped_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    pool = WorkerPool("test", threads=1, size_of=lambda items, _: len(items))

    def work(_: str, took_s: float) -> None:
        now_s[0] += took_s

    for took_s in (7200.0, 2.0, 2.0, 2.0, 3600.0, 2.0, 3600.0):
        await pool.submit(NOW, work, "four", took_s)
    assert pool.unit_s == 0.5
    for _ in range(5):  # they do take longer now
        await pool.submit(NOW, work, "four", 8.0)
    assert pool.unit_s == 2.0
    await asyncio.to_thread(pool.close)


async def test_work_that_comes_back_late_counts_as_long_as_it_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    pool, gate = WorkerPool("test", threads=1, size_of=lambda _: 1), Gate()
    threads: list[threading.Thread] = []

    def work(gate: Gate) -> int:
        threads.append(threading.current_thread())
        return gate()

    stuck = pool.submit(NOW, work, gate)
    await gate.entered()
    look_twice(pool, AT_ONCE, 5.0)
    await failure(stuck)
    pool.look(AT_ONCE, 2.0)
    now_s[0] += 3600.0  # nobody looked: the process was stopped
    gate.let_go()
    await until(lambda: not threads[0].is_alive())
    assert pool.unit_s == 7.0
    await asyncio.to_thread(pool.close)


async def test_closing_a_pool_withdraws_what_has_not_begun_and_waits_for_what_has() -> None:
    pool, gate = WorkerPool("test", threads=1), Gate()
    running = pool.submit(NOW, gate)
    await gate.entered()
    waiting = pool.submit(NOW, len, "never")
    closing = asyncio.create_task(asyncio.to_thread(pool.close))
    await until(waiting.cancelled)
    assert not closing.done()
    gate.let_go()
    await asyncio.wait_for(closing, PATIENCE_S)
    assert await running == 1


async def test_a_thread_that_came_back_late_is_not_among_those_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_MOST_LEFT", 1)
    pool = WorkerPool("test", threads=1)
    for _ in range(3):
        gate = Gate()
        threads: list[threading.Thread] = []

        def work(gate: Gate = gate, threads: list[threading.Thread] = threads) -> int:
            threads.append(threading.current_thread())
            return gate()

        stuck = pool.submit(NOW, work)
        await gate.entered()
        (message,) = look_twice(pool, AT_ONCE)
        assert "another takes its place" in message
        await failure(stuck)
        gate.let_go()
        await asyncio.to_thread(threads[0].join, PATIENCE_S)
    await asyncio.to_thread(pool.close)


def test_work_that_usually_waits_long_may_wait_as_long_again() -> None:
    watch, patience = Watch(), Patience(busy_s=4.0, blocked_s=4.0, times_usual=3.0)
    watch.look(1, 0.0, 0.0)
    watch.look(1, 0.0, 5.0)
    assert patience.is_out(watch, 1.0)
    assert not patience.is_out(watch, 2.0)
