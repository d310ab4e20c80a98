"""Work in threads, in order and bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from twinlens.client.pipeline import in_order


def test_results_come_in_the_order_of_the_inputs_whichever_is_done_first() -> None:
    second_done = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert second_done.wait(30)
        if number == 1:
            second_done.set()
        return number * 10

    assert list(in_order(work, range(6), workers=2)) == [0, 10, 20, 30, 40, 50]


def test_inputs_are_read_no_further_ahead_than_the_workers_need() -> None:
    read = [0]

    def numbers() -> Iterator[int]:
        for number in range(100):
            read[0] = number + 1
            yield number

    results = in_order(lambda number: number, numbers(), workers=2)
    for expected in range(10):
        assert next(results) == expected
        assert read[0] <= expected + 1 + 2 * 2
    results.close()  # type: ignore[attr-defined]
    assert read[0] < 20


def test_an_error_of_the_work_ends_it_and_is_the_callers() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        return number

    results = in_order(work, range(1000), workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(results)


def test_an_error_does_not_wait_for_work_under_way() -> None:
    go_on = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            raise KeyError(number)
        assert go_on.wait(30)

    with pytest.raises(KeyError):
        next(in_order(work, range(2), workers=2))
    go_on.set()  # reached while the other is still at work


def test_an_error_of_the_inputs_is_the_callers() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError

    with pytest.raises(KeyError):
        list(in_order(lambda number: number, numbers(), workers=2))
