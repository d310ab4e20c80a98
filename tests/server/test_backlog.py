"""The bound on waiting, on a simulated server whose clock is ours."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from twinlens.server.core.backlog import Backlog

FLOOR = 80
MAX_WAIT_S = 0.25
MAX_BATCH = 16


@dataclass
class Run:
    """What became of calls: when each was answered and how long it took; when each was refused."""

    answered: list[tuple[float, float]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def rate(self, begin_s: float, end_s: float) -> float:
        return sum(begin_s <= at_s < end_s for at_s, _ in self.answered) / (end_s - begin_s)

    def p99_s(self, begin_s: float = 0.0) -> float:
        took = sorted(took_s for at_s, took_s in self.answered if at_s >= begin_s)
        return took[int(0.99 * len(took))]


def pictures_s(items: int) -> float:
    return 0.02 + 0.018 * items


def texts_s(items: int) -> float:
    return 0.001 + 0.0005 * items


def capacity(batch_s: Callable[[int], float]) -> float:
    return MAX_BATCH / batch_s(MAX_BATCH)


def arrivals(rate: float, begin_s: float, end_s: float, seed: int = 0) -> Iterator[float]:
    rng = random.Random(seed)
    now_s = begin_s
    while (now_s := now_s + rng.expovariate(rate)) < end_s:
        yield now_s


def serve(times: Iterable[float], batch_s: Callable[[int], float], backlog: Backlog | None = None) -> Run:
    """One tower that runs batches one after the other, and callers who come when they come."""
    backlog = backlog or Backlog(FLOOR, MAX_WAIT_S)
    run = Run()
    coming = deque(times)
    waiting: deque[float] = deque()
    running: list[float] = []
    end_s = float("inf")
    while coming or waiting or running:
        if coming and coming[0] <= end_s:
            now_s = coming.popleft()
            if backlog.refusal(1, now_s) is None:
                backlog.enter(1, now_s)
                waiting.append(now_s)
            else:
                run.refused.append(now_s)
        else:
            now_s, end_s = end_s, float("inf")
            for came_s in running:
                backlog.leave(1, now_s, served=True)
                run.answered.append((now_s, now_s - came_s))
            running = []
        if not running and waiting:
            running = [waiting.popleft() for _ in range(min(MAX_BATCH, len(waiting)))]
            end_s = now_s + batch_s(len(running))
    return run


def in_turns(callers: int, batch_s: Callable[[int], float]) -> float:
    """How long a call takes when so many callers ask again as soon as they are answered."""
    return callers / capacity(batch_s)


@pytest.mark.parametrize("batch_s", [pictures_s, texts_s])
def test_overload_costs_neither_answers_nor_much_waiting(batch_s: Callable[[int], float]) -> None:
    most = capacity(batch_s)
    full = serve(arrivals(most, 0, 30), batch_s)
    over = serve(arrivals(3 * most, 0, 30), batch_s)
    assert over.rate(1, 30) >= 0.95 * most
    assert over.p99_s() <= 2 * full.p99_s()
    assert over.refused


def test_overload_makes_nobody_wait_twice_as_long_as_64_callers_in_turns_do() -> None:
    over = serve(arrivals(3 * capacity(pictures_s), 0, 60), pictures_s)
    assert over.p99_s() <= 2 * in_turns(64, pictures_s)


def test_fast_work_waits_no_longer_than_is_set_once_the_queue_stands() -> None:
    over = serve(arrivals(3 * capacity(texts_s), 0, 20), texts_s)
    assert over.p99_s(begin_s=2) <= 1.2 * MAX_WAIT_S


@pytest.mark.parametrize("batch_s", [pictures_s, texts_s])
def test_after_an_overload_everybody_is_let_in_at_once(batch_s: Callable[[int], float]) -> None:
    most = capacity(batch_s)
    times = [*arrivals(3 * most, 0, 10), *arrivals(most / 2, 10, 20)]
    run = serve(times, batch_s)
    assert max(run.refused) < 10.1
    normal_s = serve(arrivals(most / 2, 0, 10), batch_s).p99_s()
    assert run.p99_s(begin_s=14) <= 1.5 * normal_s


def test_a_burst_that_goes_by_itself_is_let_in() -> None:
    run = serve([i * 1e-4 for i in range(600)], texts_s)
    assert len(run.answered) == 600


@pytest.mark.parametrize("batch_s", [pictures_s, texts_s, lambda items: 0.2 * items])
def test_64_callers_in_turns_are_never_refused(batch_s: Callable[[int], float]) -> None:
    backlog = Backlog(FLOOR, MAX_WAIT_S)
    now_s = 0.0
    inside = 0
    for _ in range(200):
        while inside < 64:
            assert backlog.refusal(1, now_s) is None
            backlog.enter(1, now_s)
            inside += 1
        now_s += batch_s(MAX_BATCH)
        for _ in range(MAX_BATCH):
            backlog.leave(1, now_s, served=True)
            inside -= 1


def test_a_few_callers_that_bring_a_batch_each_are_let_in() -> None:
    backlog = Backlog(FLOOR, MAX_WAIT_S)
    now_s = 0.0
    for _ in range(20):
        assert backlog.refusal(16, now_s) is None
        backlog.enter(16, now_s)
    for _ in range(50):  # 50 pictures a second
        now_s += pictures_s(16)
        backlog.leave(16, now_s, served=True)
        assert backlog.refusal(16, now_s) is None
        backlog.enter(16, now_s)
    assert backlog.refusal(16, now_s) is not None


def test_who_cannot_be_answered_in_time_is_refused_at_once() -> None:
    backlog = Backlog(FLOOR, max_wait_s=10.0)
    now_s = 0.0
    for _ in range(40):
        backlog.enter(10, now_s)
    for _ in range(20):  # 100 a second, while 400 are inside
        now_s += 0.1
        backlog.leave(10, now_s, served=True)
        backlog.enter(10, now_s)
    assert backlog.refusal(1, now_s, left_s=5.0) is None
    retry_after_s = backlog.refusal(1, now_s, left_s=3.0)
    assert retry_after_s is not None
    assert retry_after_s == pytest.approx(1.0, rel=0.2)


def test_callers_who_gave_up_do_not_count_as_answered() -> None:
    backlog = Backlog(FLOOR, MAX_WAIT_S)
    for _ in range(400):
        backlog.enter(1, 0.0)
    for i in range(1, 101):
        backlog.leave(1, i / 100, served=False)
    assert backlog.refusal(1, 1.0) == 5.0


def test_who_comes_alone_is_let_in_however_slow_the_work_was() -> None:
    backlog = Backlog(1, MAX_WAIT_S)
    backlog.enter(5, 0.0)
    assert backlog.refusal(1, 60.0) is not None
    backlog.leave(5, 60.0, served=True)
    assert backlog.refusal(1000, 61.0) is None
