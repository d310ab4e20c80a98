"""Weights between a parent and what was trained from it (WiSE-FT, Wortsman et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twinlens.training.errors import CheckpointError

Weights = Mapping[str, Tensor]


def copied_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights and buffers of a model as they are now, by name, on the CPU."""
    return {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}


def interpolated(parent: Weights, tuned: Weights, alpha: float) -> dict[str, Tensor]:
    """θ = (1 - α) θ_parent + α θ_tuned (Wortsman et al. 2022, eq. 1), for weights and running statistics alike.

    Whole numbers, such as counters and tables of positions, are those of the tuned weights.

    Args:
        parent: Weights by name.
        tuned: Those that were trained from them.
        alpha: The share of the tuned ones: 0 gives the parent's, 1 the tuned ones, bit by bit.

    Raises:
        CheckpointError: if the two are not of one architecture.
        ValueError: if α is not within 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"the share of the tuned weights must be within 0 to 1, not {alpha}")
    if parent.keys() != tuned.keys() or any(parent[name].shape != tuned[name].shape for name in parent):
        raise CheckpointError("only weights of one architecture can be interpolated")
    return {name: _between(parent[name].to(end.device), end, alpha) for name, end in tuned.items()}


def _between(start: Tensor, end: Tensor, alpha: float) -> Tensor:
    if not end.is_floating_point() or alpha == 1:
        return end
    # What was not trained stays bit by bit.
    return torch.where(start == end, end, torch.lerp(start.to(end.dtype), end, alpha))


@dataclass(frozen=True)
class Point:
    """One share of the tuned weights, and what it is worth.

    Attributes:
        alpha: The share.
        value: On the validation data; the higher, the better.
        kept: On what must not be forgotten; None: nothing is named.
    """

    alpha: float
    value: float
    kept: float | None = None


def chosen(points: Sequence[Point], *, kept_gain: float, max_forgotten: float) -> Point:
    """The smallest share of the tuned weights that keeps `kept_gain` of the best share's gain over the parent.

    Shares that lose more than `max_forgotten` of the parent's `kept` do not take part. Where no share is better than
    the parent, the parent is chosen.

    Args:
        points: By rising share, the first the parent (share 0).
        kept_gain: 0 to 1; at 1 it is the best share, of equals the smallest.
        max_forgotten: How much may be lost.

    Raises:
        ValueError: if the first is not the parent.
    """
    if not points or points[0].alpha != 0:
        raise ValueError("the first point must be the parent, at a share of 0")
    parent = points[0]
    allowed = [point for point in points if not _forgets(point, parent, max_forgotten)]
    best = max(point.value for point in allowed)
    # Rounding must not take the best share itself away.
    least = min(best, parent.value + kept_gain * (best - parent.value))
    return next(point for point in allowed if point.value >= least)


def _forgets(point: Point, parent: Point, max_forgotten: float) -> bool:
    if point.kept is None or parent.kept is None:
        return False
    return parent.kept - point.kept > max_forgotten + 1e-9  # shares of a few hundred pictures are no round numbers


def interpolate(
    model: nn.Module,
    parent: Weights,
    *,
    steps: int,
    measure: Callable[[float], Point],
    choose: Callable[[Sequence[Point]], Point],
) -> list[Point]:
    """Tries evenly spread shares of the model's weights and leaves the chosen ones in it.

    Args:
        model: Tuned; its weights are changed in place.
        parent: What it was tuned from.
        steps: Shares between the parent and the tuned weights, the last of which is all of them.
        measure: What the model is worth that holds a share.
        choose: One of the points, from those of all shares by rising share.

    Returns:
        The points, the chosen one last.

    Raises:
        CheckpointError: if the two are not of one architecture.
    """
    tuned = copied_weights(model)
    points: list[Point] = []
    for step in range(steps + 1):
        alpha = step / steps
        model.load_state_dict(interpolated(parent, tuned, alpha))
        points.append(measure(alpha))
    taken = choose(points)
    model.load_state_dict(interpolated(parent, tuned, taken.alpha))
    return [*points, taken]
