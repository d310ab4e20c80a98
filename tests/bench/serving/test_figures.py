"""What is made of the times of single calls."""

from __future__ import annotations

import numpy as np
import pytest

from bench.serving.figures import OK, REFUSED, Done, growth_per_thousand, percentiles_ms, recovery_s, summary


def call(due: float, end: float, outcome: str = OK, sent: float | None = None) -> Done:
    return Done(due, due if sent is None else sent, end, outcome)


def test_percentiles_are_in_milliseconds_and_absent_where_nothing_was_answered() -> None:
    assert percentiles_ms([0.01] * 99 + [1.0])["p50_ms"] == pytest.approx(10)
    assert percentiles_ms([]) == {}


def test_callers_who_wait_count_by_the_part_of_their_time() -> None:
    calls = [call(0.0, 2.0), call(1.0, 1.9), call(1.9, 2.4), call(2.1, 2.2), call(1.2, 1.2, REFUSED)]
    found = summary(calls, 1.0, 2.1, by_due=False)
    assert found["ok_per_s"] * 1.1 == pytest.approx(1 / 2 + 1 + 2 / 5)
    assert found["answered"] == pytest.approx(1 / 2 + 1 + 2 / 5 + 1)
    assert found["outcomes"] == {OK: 2, REFUSED: 1}  # those who were answered within
    assert found["p50_ms"] == pytest.approx(1450)


@pytest.mark.parametrize("cut_s", np.linspace(0, 1, 7))
def test_where_a_phase_cuts_between_batches_does_not_change_the_rate(cut_s: float) -> None:
    batches = [call(start, start + 1.0) for start in range(12) for _ in range(16)]
    assert summary(batches, 3.0 + cut_s, 7.5 + cut_s, by_due=False)["ok_per_s"] == pytest.approx(16)


def test_waits_of_an_open_loop_begin_when_a_call_was_due_not_when_a_late_generator_sent_it() -> None:
    found = summary([call(1.0, 1.5, sent=1.4)], 1.0, 2.0, by_due=True)
    assert found["p50_ms"] == pytest.approx(500)
    assert found["late_p99_ms"] == pytest.approx(400)


def test_goodput_is_what_was_answered_in_the_phase_though_due_before() -> None:
    calls = [call(0.5, 1.2), call(1.0, 1.1, REFUSED), call(1.5, 2.5)]
    found = summary(calls, 1.0, 2.0, by_due=True)
    assert found["ok_per_s"] == 1.0
    assert found["outcomes"] == {REFUSED: 1, OK: 1}
    assert found["refused_p99_ms"] == pytest.approx(100)


def test_recovery_ends_with_the_last_call_that_was_refused_or_slow() -> None:
    calls = [call(9.0, 9.1, REFUSED), call(10.2, 10.3, REFUSED), call(10.7, 12.0), call(11.0, 11.1)]
    assert recovery_s(calls, over_s=10.0, slow_s=1.0) == pytest.approx(0.7)
    assert recovery_s(calls[3:], over_s=10.0, slow_s=1.0) == 0.0


def test_growth_is_the_slope_behind_the_warm_up() -> None:
    calls = np.arange(0, 30_000, 1000)
    warm = np.minimum(calls, 10_000) * 1.0  # grows fast, then not any more
    levelled = [(int(n), 500 + w) for n, w in zip(calls, warm, strict=True)]
    assert growth_per_thousand(levelled) == pytest.approx(0, abs=1e-6)
    assert growth_per_thousand([(int(n), 100 + n / 500) for n in calls]) == pytest.approx(2.0)


def test_what_calls_hold_meanwhile_is_no_growth() -> None:
    held = np.random.default_rng(0).exponential(20, 600)
    assert abs(growth_per_thousand([(5 * i, 1000 + held[i]) for i in range(600)])) < 1


@pytest.mark.parametrize("samples", [[], [(1, 1.0)], [(5, 1.0)] * 9])
def test_no_slope_is_made_of_too_little(samples: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="too few"):
        growth_per_thousand(samples)
