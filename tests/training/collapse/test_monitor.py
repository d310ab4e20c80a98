"""The monitor stops what has collapsed, names why, and leaves healthy runs alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from twinlens.training.collapse.monitor import CollapseMonitor
from twinlens.training.errors import TrainingError

N, D, ROOT_D = 32, 16, 4.0


def noise(step: int, n: int = N, d: int = D) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(step))


def around_one_point(step: int, width: float) -> Tensor:
    return torch.eye(D)[0] + width * noise(step) / ROOT_D


def along_a_line(step: int, width: float) -> Tensor:
    return noise(step)[:, :1] * torch.eye(D)[1] + width * noise(step + 10_000) / ROOT_D


def first_stop(embeddings: Callable[[int], Tensor], steps: int, *, every: int = 1, patience: int = 30) -> int | None:
    monitor = CollapseMonitor("because of a test", patience=patience)
    for step in range(every, steps + 1, every):
        z = embeddings(step)
        try:
            monitor.see(step, (z, z))
        except TrainingError:
            return step
    return None


@pytest.mark.parametrize("every", [1, 10, 20])
def test_embeddings_that_become_equal_stop_the_run_within_tens_of_steps(every: int) -> None:
    stop = first_stop(lambda step: noise(step) if step < 50 else torch.ones(N, D), 200, every=every)
    assert stop is not None
    assert 50 < stop <= 100


def test_embeddings_that_shrink_to_a_point_stop_the_run() -> None:
    stop = first_stop(lambda step: around_one_point(step, 0.8**step), 100)
    assert stop is not None
    assert stop < 60


@pytest.mark.parametrize("every", [1, 20])
def test_embeddings_that_fall_onto_a_line_stop_the_run_although_their_spread_is_perfect(every: int) -> None:
    stop = first_stop(lambda step: noise(step) if step < 50 else along_a_line(step, 0.05), 200, every=every)
    assert stop is not None
    assert 50 < stop <= 100


@pytest.mark.parametrize("rank", [1, 2])
def test_embeddings_that_keep_a_few_directions_and_nothing_else_stop_the_run(rank: int) -> None:
    stop = first_stop(lambda step: noise(step) if step < 50 else noise(step, d=rank) @ torch.eye(D)[:rank], 200)
    assert stop is not None
    assert 50 < stop <= 100


def test_a_few_strong_directions_among_many_are_healthy() -> None:
    strength = torch.tensor([1.0, 0.7, 0.5] + [0.15] * (D - 3))
    assert first_stop(lambda step: noise(step) if step < 50 else noise(step) * strength, 400, every=5) is None


def test_without_a_second_view_a_line_is_no_failure_and_equal_embeddings_are_given_longer() -> None:
    monitor = CollapseMonitor("x")
    for step in range(1, 200):
        monitor.see(step, (noise(step) if step < 50 else along_a_line(step, 0.01),))
    monitor = CollapseMonitor("x")
    for step in range(1, 300):
        monitor.see(step, (noise(step) if step < 50 else torch.ones(N, D),))
    with pytest.raises(TrainingError, match="collapsed at step 400"):
        monitor.see(400, (torch.ones(N, D),))


@pytest.mark.parametrize(
    ("collapsed", "message"),
    [
        (torch.ones(N, D), r"collapsed at step 4: all pictures have nearly the same .*; because of a test$"),
        (along_a_line(0, 0.01), r"collapsed at step 4 to 1\.\d of 16 dimensions .*; because of a test$"),
    ],
    ids=["complete", "dimensional"],
)
def test_the_message_tells_which_collapse_and_the_likely_cause(collapsed: Tensor, message: str) -> None:
    monitor = CollapseMonitor("because of a test", patience=2)
    monitor.see(1, (noise(1), noise(1)))
    for step in (2, 3):
        monitor.see(step, (collapsed, collapsed))
    with pytest.raises(TrainingError, match=message):
        monitor.see(4, (collapsed, collapsed))


def test_a_network_that_starts_with_nearly_equal_embeddings_is_given_time_to_part_them() -> None:
    assert first_stop(lambda step: around_one_point(step, 0.02 * 1.02**step), 250, every=5) is None
    assert first_stop(lambda step: along_a_line(step, 0.01 * 1.03**step), 250, every=5) is None


def test_embeddings_that_are_equal_from_the_start_and_stay_so_stop_the_run_later() -> None:
    stop = first_stop(lambda step: around_one_point(step, 0.01), 400)
    assert stop is not None
    assert 250 < stop < 350


def test_a_dip_shorter_than_the_patience_is_forgiven() -> None:
    def dipping(step: int) -> Tensor:
        return around_one_point(step, 0.001) if step % 50 < 25 else noise(step)

    assert first_stop(dipping, 300) is None


def test_two_looks_are_not_enough_however_far_apart_they_are() -> None:
    assert first_stop(lambda step: noise(step) if step < 500 else torch.ones(N, D), 900, every=250) is None


def test_a_healthy_run_reports_every_measure() -> None:
    z = noise(0, 256)
    values = CollapseMonitor("x").see(1, (z, z + 0.1 * noise(1, 256), noise(2, 256)))
    assert values["std"] == pytest.approx(D**-0.5, rel=0.05)
    assert 12 < values["effective_rank"] <= D
    assert 12 < values["directions"] <= D
    assert values["uniformity"] == pytest.approx(-3.5, abs=0.5)
    assert 0 < values["alignment"] < 0.05


def test_equal_embeddings_are_reported_as_of_no_rank() -> None:
    values = CollapseMonitor("x").see(1, (torch.full((N, D), 0.3),))
    assert values["std"] == pytest.approx(0, abs=1e-6)
    assert values["effective_rank"] == values["directions"] == 0.0
    assert "alignment" not in values


@pytest.mark.parametrize("pictures", [2, 3])
def test_so_few_pictures_never_look_like_a_line(pictures: int) -> None:
    assert first_stop(lambda step: noise(step, n=pictures), 400) is None


def test_a_method_without_embeddings_is_left_alone() -> None:
    assert CollapseMonitor("x").see(1, ()) == {}


def test_embeddings_that_are_not_finite_stop_the_run_at_once() -> None:
    broken = torch.full((4, 2), float("nan"))
    for embeddings in ((broken,), (torch.ones(4, 2), broken)):
        with pytest.raises(TrainingError, match="not finite at step 3"):
            CollapseMonitor("x").see(3, embeddings)


def test_bfloat16_embeddings_are_measured_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = CollapseMonitor("x").see(1, (noise(0).bfloat16(), noise(0).bfloat16()))
    assert values["alignment"] == pytest.approx(0.0, abs=1e-6)
