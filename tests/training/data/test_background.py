from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from twinlens.training.data.background import in_background


def test_results_come_in_order_from_another_thread() -> None:
    seen: list[int] = []

    def results() -> Iterator[int]:
        for number in range(100):
            seen.append(threading.get_ident())
            yield number

    assert list(in_background(results(), ahead=3)) == list(range(100))
    assert set(seen).isdisjoint({threading.get_ident()})


def test_no_more_than_asked_for_is_made_ahead() -> None:
    made = threading.Semaphore(0)
    count = [0]

    def results() -> Iterator[int]:
        for number in range(100):
            count[0] += 1
            made.release()
            yield number

    ahead = in_background(results(), ahead=3)
    assert next(ahead) == 0
    for _ in range(4):
        made.acquire()
    ahead.close()
    assert count[0] <= 6


def test_an_error_is_raised_after_what_came_before_it() -> None:
    def results() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = in_background(results(), ahead=3)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_whoever_stops_early_ends_the_thread_and_closes_the_results() -> None:
    closed = threading.Event()

    def results() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    before = threading.active_count()
    ahead = in_background(results(), ahead=2)
    next(ahead)
    ahead.close()
    assert closed.is_set()
    assert threading.active_count() == before
