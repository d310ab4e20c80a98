from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from twinlens.training.collapse.assignments import AssignmentMonitor, assignment_use
from twinlens.training.errors import TrainingError

K = 8


def one_each(n: int = 16) -> Tensor:
    return torch.eye(K)[torch.arange(n) % K]


def on_one(n: int = 16) -> Tensor:
    return torch.eye(K)[torch.zeros(n, dtype=torch.int64)]


def uniform(n: int = 16) -> Tensor:
    return torch.full((n, K), 1 / K)


def test_assignments_that_tell_groups_apart_carry_the_log_of_their_number() -> None:
    use = assignment_use(one_each())
    assert float(use.information) == pytest.approx(math.log(K))
    assert float(use.used) == pytest.approx(K)
    assert float(use.entropy) == 0.0


@pytest.mark.parametrize(("collapsed", "used"), [(on_one(), 1.0), (uniform(), K)])
def test_both_collapses_carry_nothing(collapsed: Tensor, used: float) -> None:
    use = assignment_use(collapsed)
    assert float(use.information) == pytest.approx(0.0, abs=1e-6)
    assert float(use.used) == pytest.approx(used)


@pytest.mark.parametrize(
    ("collapsed", "words"),
    [(on_one(), r"all pictures fall on the same \(1\.0 of 8 in use\)"), (uniform(), "spread over all prototypes")],
)
def test_a_run_whose_assignments_stay_collapsed_is_stopped_with_how_and_why(collapsed: Tensor, words: str) -> None:
    monitor = AssignmentMonitor("the cause", patience=30)
    monitor.see(0, assignment_use(one_each()))
    for step in (10, 20, 30):
        monitor.see(step, assignment_use(collapsed))
    with pytest.raises(TrainingError, match=f"{words}.*; the cause"):
        monitor.see(40, assignment_use(collapsed))


def test_a_dip_and_a_slow_start_are_not_a_collapse() -> None:
    monitor = AssignmentMonitor("", patience=30)
    for step in range(0, 100, 10):
        monitor.see(step, assignment_use(uniform()))
    for step in range(100, 1000, 10):
        monitor.see(step, assignment_use(on_one() if step % 40 else one_each()))


def test_a_run_that_never_tells_pictures_apart_is_stopped_in_the_end() -> None:
    monitor = AssignmentMonitor("the cause", patience=30)
    for step in range(0, 300, 10):
        monitor.see(step, assignment_use(uniform()))
    with pytest.raises(TrainingError, match="the cause"):
        monitor.see(300, assignment_use(uniform()))
