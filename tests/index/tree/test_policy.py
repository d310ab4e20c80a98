from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.index.tree.policy import LARGE_SHARE, LAST_RETRY_S, REST_FACTOR, Numbers, retry_s, wait_s

LEAST = 4096
NEVER = math.inf


@pytest.mark.parametrize("share", [0.1, 1.0, 10.0, 100.0])
def test_a_growing_collection_costs_a_few_times_what_building_it_once_does(share: float) -> None:
    """Batches of any size, written so fast that no remainder is ever due."""
    numbers, work, batch = Numbers(0, 0, 0, 0), 0, max(1, int(LEAST * share))
    while numbers.merged + numbers.pending < 1_000_000:
        numbers = replace(numbers, pending=numbers.pending + batch, entries=numbers.entries + batch)
        if wait_s(numbers, LEAST, since_s=0.0, took_s=1.0) == 0:
            count = numbers.merged + numbers.pending
            work += count
            numbers = Numbers(count, 0, 0, 0)
    assert work <= (1 + 1 / LARGE_SHARE) * (numbers.merged + numbers.pending)
    assert numbers.pending <= max(LARGE_SHARE * numbers.merged, LEAST)


@given(st.integers(0, 10**7), st.floats(0.1, 1e4), st.floats(0, 1e6))
def test_remains_are_merged_but_merging_takes_no_more_than_a_twentieth_of_the_time(
    merged: int, took_s: float, since_s: float
) -> None:
    numbers = Numbers(merged + 20 * LEAST, LEAST, 0, LEAST)
    wait = wait_s(numbers, LEAST, since_s=since_s, took_s=took_s)
    assert wait == pytest.approx(max(0.0, REST_FACTOR * took_s - since_s))


def test_a_large_share_of_few_merged_vectors_is_left_until_it_is_worth_a_merge() -> None:
    merged = 2 * LEAST
    assert wait_s(Numbers(merged, LEAST - 1, 0, LEAST), LEAST, since_s=0.0, took_s=1.0) is None
    assert wait_s(Numbers(merged, LEAST, 0, LEAST), LEAST, since_s=0.0, took_s=1.0) == 0.0


def test_few_vectors_stay_unmerged() -> None:
    assert wait_s(Numbers(0, LEAST - 1, 0, 10**4), LEAST, since_s=NEVER, took_s=0) is None
    assert wait_s(Numbers(0, LEAST, 0, LEAST), LEAST, since_s=NEVER, took_s=0) == 0
    assert wait_s(Numbers(10**6, LEAST - 1, 0, LEAST - 1), LEAST, since_s=NEVER, took_s=0) is None


def test_an_empty_tree_is_never_merged() -> None:
    assert wait_s(Numbers(0, 0, 0, 10**6), 0, since_s=NEVER, took_s=0) is None


def test_hidden_vectors_count_as_pending_ones_do() -> None:
    assert wait_s(Numbers(10**6, 0, 250_000, 250_000), LEAST, since_s=0, took_s=60) == 0
    assert wait_s(Numbers(5000, 0, 5000, 5000), LEAST, since_s=0, took_s=60) == 0


def test_a_long_log_is_merged_however_few_vectors_it_concerns() -> None:
    assert wait_s(Numbers(10**5, 100, 100, 10**5), LEAST, since_s=0, took_s=60) is None
    assert wait_s(Numbers(10**5, 100, 100, 4 * 10**5), LEAST, since_s=0, took_s=60) == 0


def test_another_kind_is_due_in_its_time() -> None:
    numbers = Numbers(10**5, 0, 0, 0)
    assert wait_s(numbers, LEAST, since_s=NEVER, took_s=60, outgrown=True) == 0
    assert wait_s(numbers, LEAST, since_s=10, took_s=60, outgrown=True) == REST_FACTOR * 60 - 10
    assert wait_s(numbers, LEAST, since_s=NEVER, took_s=60) is None


def test_failures_are_tried_again_ever_more_seldom() -> None:
    waits = [retry_s(failures) for failures in range(1, 40)]
    assert waits == sorted(waits)
    assert waits[0] < 10 < waits[3]
    assert waits[-1] == LAST_RETRY_S
