from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from tests.server.watched import PATIENCE_S, until
from twinlens.server.core import pool as pool_module
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.core.patience import Patience, Watch, thread_cpu_s
from twinlens.server.core.pool import WorkerPool

NOW = Priority.INTERACTIVE
AT_ONCE = Patience(busy_s=0.0)


class Gate:
    """Work that waits until it is let go, and says when it began."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._open = threading.Event()

    def __call__(self, size: int = 1) -> int:
        self.begun.set()
        assert self._open.wait(PATIENCE_S)
        return size

    async def entered(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, PATIENCE_S)

    def let_go(self) -> None:
        self._open.set()


@pytest_asyncio.fixture
async def gates() -> AsyncIterator[Callable[[], Gate]]:
    made: list[Gate] = []

    def make() -> Gate:
        made.append(Gate())
        return made[-1]

    yield make
    for gate in made:
        gate.let_go()


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("test", threads=1)
    yield pool
    await asyncio.to_thread(pool.close)


def look_twice(pool: WorkerPool, patience: Patience, seen_s: float = 1.0) -> list[str]:
    """The first look at a piece of work only learns of it."""
    return [trouble.message for _ in range(2) for trouble in pool.look(patience, seen_s)]


async def failure(future: asyncio.Future[int]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await asyncio.wait_for(future, PATIENCE_S)
    return caught.value


async def test_stuck_work_fails_and_what_waits_is_done_by_another_thread(
    pool: WorkerPool, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    stuck = pool.submit(NOW, gate)
    waiting = pool.submit(NOW, threading.get_ident)
    await gate.entered()
    (message,) = look_twice(pool, AT_ONCE)
    assert "twinlens-test-0 is stuck" in message
    error = await failure(stuck)
    assert error.code is Code.UNAVAILABLE
    assert error.retry_after_s
    assert await waiting
    assert not look_twice(pool, AT_ONCE)


async def test_a_thread_that_comes_back_late_takes_no_more_work(pool: WorkerPool, gates: Callable[[], Gate]) -> None:
    gate = gates()
    late: list[threading.Thread] = []

    def work() -> int:
        late.append(threading.current_thread())
        return gate()

    stuck = pool.submit(NOW, work)
    await gate.entered()
    look_twice(pool, AT_ONCE)
    await failure(stuck)
    gate.let_go()
    await until(lambda: not late[0].is_alive())
    assert await pool.submit(NOW, lambda: 7) == 7


async def test_a_thread_that_ends_is_replaced_and_its_work_fails(pool: WorkerPool) -> None:
    def leave() -> int:
        raise SystemExit(3)

    assert (await failure(pool.submit(NOW, leave))).code is Code.UNAVAILABLE
    assert await pool.submit(NOW, lambda: 7) == 7
    (trouble,) = pool.look(Patience(), 0.0)
    assert "ended with SystemExit" in trouble.message
    assert trouble.replaced


async def test_short_pieces_of_work_one_after_the_other_are_not_one_long_piece(
    pool: WorkerPool, gates: Callable[[], Gate]
) -> None:
    for _ in range(3):
        gate = gates()
        running = pool.submit(NOW, gate)
        await gate.entered()
        assert not pool.look(AT_ONCE, 1.0)
        gate.let_go()
        await running


async def test_work_that_computes_has_longer_than_work_that_waits(pool: WorkerPool, gates: Callable[[], Gate]) -> None:
    patience = Patience(busy_s=60.0, blocked_s=0.5)
    end = threading.Event()
    threads: list[threading.Thread] = []

    def compute() -> int:
        threads.append(threading.current_thread())
        while not end.is_set():
            sum(range(1000))
        return 7

    computing = pool.submit(NOW, compute)
    await until(lambda: bool(threads))
    if (computed_s := thread_cpu_s(threads[0])) is None:
        end.set()
        pytest.skip("this system does not tell what a thread computes")
    for _ in range(3):
        computed_s += 0.05
        await until(lambda wanted=computed_s: (thread_cpu_s(threads[0]) or 0.0) > wanted)  # type: ignore[misc]
        assert not pool.look(patience, 0.4)
    end.set()
    assert await computing == 7
    gate = gates()
    waiting = pool.submit(NOW, gate)
    await gate.entered()
    assert look_twice(pool, patience, 30.0)
    await failure(waiting)


async def test_threads_that_all_wait_get_company_and_their_work_stands(gates: Callable[[], Gate]) -> None:
    pool = WorkerPool("disk", threads=2)
    patience = Patience(all_blocked_s=1.0)
    first, second = gates(), gates()
    works = [pool.submit(NOW, first)]
    await first.entered()
    assert not look_twice(pool, patience, 5.0)  # one thread is free
    works.append(pool.submit(NOW, second))
    await second.entered()
    assert len(look_twice(pool, patience, 5.0)) == 2
    assert await pool.submit(NOW, lambda: 7) == 7
    first.let_go()
    second.let_go()
    assert await asyncio.gather(*works) == [1, 1]
    await asyncio.to_thread(pool.close)


async def test_work_may_take_a_few_times_what_such_work_usually_takes(gates: Callable[[], Gate]) -> None:
    def guarded(gate: Gate) -> Callable[[int], int]:
        def work(size: int) -> int:
            return gate(size)

        return work

    pool = WorkerPool("towers", threads=1, size_of=lambda size: size)
    patience = Patience(busy_s=0.0, times_usual=3.0)
    known, slow = gates(), gates()
    known.let_go()
    assert await pool.submit(NOW, guarded(known), 1) == 1
    running = pool.submit(NOW, guarded(slow), 10**9)  # so much of it that it would take hours
    await slow.entered()
    assert not look_twice(pool, patience, 1.0)
    assert look_twice(pool, patience, 1e15)
    await failure(running)
    await asyncio.to_thread(pool.close, 0.0)


async def test_slow_work_is_taken_for_stuck_once_and_not_again_and_again(gates: Callable[[], Gate]) -> None:
    pool = WorkerPool("towers", threads=1, size_of=lambda size: size)
    patience = Patience(busy_s=0.0, times_usual=3.0)
    threads: list[threading.Thread] = []

    async def run(slow: Gate, seen_s: float) -> list[str]:
        def work(size: int) -> int:
            threads.append(threading.current_thread())
            return slow(size)

        running.append(pool.submit(NOW, work, 1))
        await slow.entered()
        return look_twice(pool, patience, seen_s)

    running: list[asyncio.Future[int]] = []
    quick, slow, again = gates(), gates(), gates()
    quick.let_go()
    await run(quick, 0.0)
    await running[0]
    begun_s = time.monotonic()
    assert await run(slow, 1e9)
    await failure(running[1])
    await until(lambda: time.monotonic() > begun_s + 0.1)
    slow.let_go()
    await until(lambda: not threads[1].is_alive())
    assert not await run(again, 0.1)
    again.let_go()
    assert await running[2] == 1
    await asyncio.to_thread(pool.close)


async def test_what_a_replaced_worker_used_is_made_anew_before_anything_runs(gates: Callable[[], Gate]) -> None:
    done: list[str] = []
    pool = WorkerPool("towers", threads=1, on_replaced=lambda: done.append("renewed"))
    gate = gates()
    stuck = pool.submit(NOW, gate)
    after = pool.submit(NOW, done.append, "after")
    await gate.entered()
    look_twice(pool, AT_ONCE)
    await after
    await failure(stuck)
    assert done == ["renewed", "after"]
    await asyncio.to_thread(pool.close, 0.0)


@pytest.mark.parametrize("error", [OSError("the model file is gone"), SystemExit(3), GeneratorExit()])
async def test_a_worker_goes_on_with_what_there_is_however_making_it_anew_fails(
    error: BaseException, gates: Callable[[], Gate], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    pool = WorkerPool("towers", threads=1, on_replaced=fail)
    gate = gates()
    stuck = pool.submit(NOW, gate)
    await gate.entered()
    look_twice(pool, AT_ONCE)
    await failure(stuck)
    assert await pool.submit(NOW, lambda: 7) == 7
    assert not pool.look(Patience(), 1.0)  # no thread ended
    assert "could not be made anew" in caplog.text
    await asyncio.to_thread(pool.close)


async def test_making_anew_that_hangs_is_left_behind_and_tried_again_when_the_next_gets_stuck(
    gates: Callable[[], Gate],
) -> None:
    renewals: list[Gate] = []

    def renew() -> None:
        renewals.append(gates())
        renewals[-1]()

    pool = WorkerPool("towers", threads=1, on_replaced=renew)
    stuck, again = gates(), gates()
    first = pool.submit(NOW, stuck)
    await stuck.entered()
    look_twice(pool, AT_ONCE)
    await failure(first)
    await until(lambda: len(renewals) == 1)
    patience = Patience(busy_s=1.0, renew_s=60.0)
    assert not look_twice(pool, patience, 30.0)
    (message,) = look_twice(pool, patience, 31.0)
    assert "makes anew what it uses since 61.0 s; another takes its place" in message
    assert await pool.submit(NOW, lambda: 7) == 7  # with what there is
    second = pool.submit(NOW, again)
    await again.entered()
    look_twice(pool, patience, 2.0)
    await failure(second)
    await until(lambda: len(renewals) == 2)
    renewals[1].let_go()
    assert await pool.submit(NOW, lambda: 8) == 8
    assert not pool.look(patience, 1.0)
    await asyncio.to_thread(pool.close)


async def test_only_so_many_threads_are_left_behind(
    pool: WorkerPool, gates: Callable[[], Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_MOST_LEFT", 2)
    for _ in range(2):
        gate = gates()
        stuck = pool.submit(NOW, gate)
        await gate.entered()
        look_twice(pool, AT_ONCE)
        await failure(stuck)
    last = gates()
    running = pool.submit(NOW, last)
    await last.entered()
    (message,) = look_twice(pool, AT_ONCE)
    assert "restart the server" in message
    assert not look_twice(pool, AT_ONCE)  # told once
    last.let_go()
    assert await running == 1


async def test_work_that_ends_with_stop_iteration_fails_instead_of_waiting_for_ever(pool: WorkerPool) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(pool.submit(NOW, next, iter(())), PATIENCE_S)


def test_time_in_which_nobody_looked_does_not_count() -> None:
    watch = Watch()
    watch.look(1, 0.0, 5.0)
    assert (watch.watched_s, watch.blocked_s) == (0.0, 0.0)
    watch.look(1, 0.0, 0.25)
    assert (watch.watched_s, watch.blocked_s) == (0.25, 0.25)
    watch.look(1, 0.2, 0.25)
    assert (watch.watched_s, watch.blocked_s) == (0.5, 0.0)
    watch.look(1, None, 0.25)
    assert (watch.watched_s, watch.blocked_s) == (0.75, 0.0)
    watch.look(2, None, 0.25)
    assert (watch.watched_s, watch.blocked_s) == (0.0, 0.0)
