from __future__ import annotations

import os
import sys
import threading
from contextlib import closing

import pytest

from twinlens.index.tree.maintenance import Maintenance


class Work:
    """Does one piece for every permit it is given."""

    def __init__(self, *, fails: bool = False) -> None:
        self.permits = 0
        self.done = threading.Semaphore(0)
        self.ran = 0
        self._fails = fails

    def wait_s(self, now_s: float) -> float | None:
        return 0.0 if now_s and self.permits else None

    def run(self) -> None:
        self.permits -= 1
        self.ran += 1
        self.done.release()
        if self._fails:
            raise RuntimeError("on purpose")


def test_work_is_done_once_it_is_due() -> None:
    with closing(Maintenance()) as maintenance:
        work = Work()
        maintenance.watch(work)
        work.permits = 2
        maintenance.wake(work)
        assert work.done.acquire(timeout=30)
        assert work.done.acquire(timeout=30)
    assert work.ran == 2


def test_what_becomes_due_by_itself_needs_no_waking() -> None:
    class Later(Work):
        asked = 0

        def wait_s(self, now_s: float) -> float | None:
            self.asked += 1
            return 0.001 if self.asked == 1 else super().wait_s(now_s)

    with closing(Maintenance()) as maintenance:
        work = Later()
        work.permits = 1
        maintenance.watch(work)
        assert work.done.acquire(timeout=30)
    assert work.asked >= 2


def test_of_many_only_what_may_have_become_due_is_asked() -> None:
    class Counting(Work):
        asked = 0

        def wait_s(self, now_s: float) -> float | None:
            self.asked += 1
            return super().wait_s(now_s)

    with closing(Maintenance()) as maintenance:
        idle, busy = Counting(), Counting()
        maintenance.watch(idle)
        maintenance.watch(busy)
        for _ in range(20):
            busy.permits = 1
            maintenance.wake(busy)
            assert busy.done.acquire(timeout=30)
    assert idle.asked == 1
    assert busy.asked >= 20


def test_collections_take_turns() -> None:
    with closing(Maintenance()) as maintenance:
        works = [Work(), Work()]
        order: list[int] = []
        both = threading.Event()

        def run(number: int) -> None:
            works[number].permits -= 1
            order.append(number)
            if len(order) == 6:
                both.set()

        for number, work in enumerate(works):
            work.permits = 3
            work.run = lambda number=number: run(number)  # type: ignore[method-assign, misc]
        maintenance.watch(Work())
        for work in works:
            maintenance.watch(work)
        assert both.wait(30)
    assert sorted(order[-4:]) == [0, 0, 1, 1]


def test_work_that_fails_does_not_stop_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    with closing(Maintenance()) as maintenance:
        failing, sound = Work(fails=True), Work()
        for work in (failing, sound):
            work.permits = 1
            maintenance.watch(work)
        assert failing.done.acquire(timeout=30)
        assert sound.done.acquire(timeout=30)
    assert "background work on a collection failed" in caplog.text


def test_what_is_forgotten_is_not_run() -> None:
    with closing(Maintenance()) as maintenance:
        forgotten, watched = Work(), Work()
        maintenance.watch(forgotten)
        maintenance.forget(forgotten)
        maintenance.watch(watched)
        forgotten.permits = watched.permits = 1
        maintenance.wake(forgotten)
        maintenance.wake(watched)
        assert watched.done.acquire(timeout=30)
    assert forgotten.ran == 0


def test_closing_ends_the_thread_and_nothing_runs_after() -> None:
    before = set(threading.enumerate())
    maintenance = Maintenance()
    work = Work()
    maintenance.watch(work)
    maintenance.close()
    maintenance.close()
    work.permits = 1
    maintenance.watch(work)
    maintenance.wake(work)
    assert work.ran == 0
    assert not [thread for thread in threading.enumerate() if thread not in before]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_searches_come_before_what_is_done_in_the_background() -> None:
    class Asking(Work):
        def run(self) -> None:
            self.niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            super().run()

    with closing(Maintenance()) as maintenance:
        work = Asking()
        work.permits = 1
        maintenance.watch(work)
        assert work.done.acquire(timeout=30)
    ours = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert work.niceness == min(ours + 5, 19)
