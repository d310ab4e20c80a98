from __future__ import annotations

from collections.abc import Iterator

import pytest

from twinlens.training.data.bounded_map import bounded_map


def test_results_come_in_order_with_their_items() -> None:
    assert list(bounded_map(lambda n: n * n, range(50), threads=3)) == [(n, n * n) for n in range(50)]
    assert list(bounded_map(lambda n: n, [], threads=2)) == []


def test_items_are_taken_only_when_results_are_used() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    results = bounded_map(lambda n: n, items(), threads=2)
    for used in range(1, 20):
        next(results)
        assert taken <= 8 + used - 1


def test_an_error_reaches_the_caller_and_ends_the_work() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    results = bounded_map(work, range(1000), threads=2)
    assert [next(results)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
