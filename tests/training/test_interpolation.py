from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from twinlens.training.errors import CheckpointError
from twinlens.training.interpolation import Point, chosen, copied_weights, interpolate, interpolated

CHOICE = {"kept_gain": 0.9, "max_forgotten": 0.02}


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model(torch.randn(8, 3))  # moves the running statistics
    return model


def test_weights_and_running_statistics_are_the_equation_of_the_paper() -> None:
    parent, tuned = network(0).state_dict(), network(1).state_dict()
    mixed = interpolated(parent, tuned, 0.3)
    for name, value in mixed.items():
        if not value.is_floating_point():
            continue
        for mine, a, b in zip(value.flatten(), parent[name].flatten(), tuned[name].flatten(), strict=True):
            assert mine.item() == pytest.approx((1 - 0.3) * a.item() + 0.3 * b.item(), abs=1e-6)
    assert {"0.weight", "1.running_mean", "1.running_var"} <= mixed.keys()


def test_counters_are_those_of_the_tuned_weights() -> None:
    parent, tuned = network(0), network(1)
    tuned(torch.randn(8, 3))
    assert interpolated(parent.state_dict(), tuned.state_dict(), 0.0)["1.num_batches_tracked"] == 2


def test_the_ends_are_the_parent_and_the_tuned_weights_bit_by_bit() -> None:
    parent, tuned = network(0).state_dict(), network(1).state_dict()
    for alpha, end in ((0.0, parent), (1.0, tuned)):
        mixed = interpolated(parent, tuned, alpha)
        assert all(torch.equal(mixed[name], end[name]) for name in ("0.weight", "0.bias", "1.running_mean"))


def test_what_was_not_trained_stays_bit_by_bit() -> None:
    weights = {"w": torch.randn(1000)}
    for alpha in (0.1, 0.3, 0.7):
        assert torch.equal(interpolated(weights, dict(weights), alpha)["w"], weights["w"])


@pytest.mark.parametrize(
    "parent", [{"w": torch.zeros(2)}, {"v": torch.zeros(3)}, {"w": torch.zeros(3), "v": torch.zeros(3)}]
)
def test_weights_of_two_architectures_are_refused(parent: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="one architecture"):
        interpolated(parent, {"w": torch.zeros(3)}, 0.5)


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="within 0 to 1"):
        interpolated({}, {}, alpha)


def points(*values: float, kept: tuple[float, ...] | None = None) -> list[Point]:
    count = len(values) - 1
    return [Point(k / count, value, None if kept is None else kept[k]) for k, value in enumerate(values)]


def test_the_smallest_share_is_chosen_that_keeps_nine_tenths_of_the_best_gain() -> None:
    found = chosen(points(0.5, 0.67, 0.695, 0.70, 0.6), **CHOICE)
    assert (found.alpha, found.value) == (0.5, 0.695)
    assert chosen(points(0.5, 0.67, 0.695, 0.70, 0.6), kept_gain=1.0, max_forgotten=0.02).alpha == 0.75


def test_the_parent_is_chosen_where_nothing_is_better() -> None:
    assert chosen(points(0.5, 0.5, 0.4), **CHOICE).alpha == 0
    assert chosen(points(0.5, 0.7, 0.8, kept=(0.9, 0.8, 0.7)), **CHOICE).alpha == 0


def test_shares_that_forget_too_much_do_not_take_part() -> None:
    grid = points(0.5, 0.6, 0.8, kept=(0.90, 0.88, 0.87))
    assert chosen(grid, **CHOICE).alpha == 0.5
    assert chosen(grid, kept_gain=0.9, max_forgotten=0.03).alpha == 1.0


def test_points_must_begin_with_the_parent() -> None:
    with pytest.raises(ValueError, match="parent"):
        chosen([Point(0.5, 1.0)], **CHOICE)


@given(
    values=st.lists(st.floats(0, 1), min_size=2, max_size=12),
    kept_gain=st.floats(0.01, 1),
)
def test_the_choice_is_never_worse_than_the_parent_and_keeps_the_gain(values: list[float], kept_gain: float) -> None:
    grid = points(*values)
    taken = chosen(grid, kept_gain=kept_gain, max_forgotten=0.02)
    gain = max(values) - values[0]
    assert taken.value >= values[0]
    assert taken.value - values[0] >= kept_gain * gain - 1e-9
    assert all(point.value < taken.value for point in grid if point.alpha < taken.alpha)


def test_the_model_is_left_with_the_chosen_share() -> None:
    parent, model = network(0), network(1)
    tuned = copied_weights(model)
    target = interpolated(parent.state_dict(), tuned, 0.4)["0.weight"]

    def measure(alpha: float) -> Point:
        weight = model.state_dict()["0.weight"]
        return Point(alpha, -float((weight - target).norm()))

    *tried, taken = interpolate(
        model,
        copied_weights(parent),
        steps=5,
        measure=measure,
        choose=lambda found: chosen(found, kept_gain=1.0, max_forgotten=0.0),
    )
    assert [point.alpha for point in tried] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert taken.alpha == 0.4
    assert torch.equal(model.state_dict()["0.weight"], target)
