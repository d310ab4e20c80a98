from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.optimiser import Schedule, optimiser_of, scheduled

RATE, DECAY, MOMENTUM = 0.3, 0.05, 0.9


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).double()


def optimiser(name: Any, module: nn.Module, *, decay: float = DECAY) -> torch.optim.Optimizer:
    return optimiser_of(name, [module], learning_rate=RATE, weight_decay=decay, momentum=MOMENTUM)


def gradients_of_a_step(module: nn.Module, step: int) -> list[Tensor]:
    """Sets gradients, and gives them."""
    generator = torch.Generator().manual_seed(step)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def walked(name: Any, *, decay: float) -> tuple[list[Tensor], list[list[Tensor]], list[Tensor]]:
    """Parameters before, the gradients of three steps, and the parameters after them."""
    module = network()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    moved = optimiser(name, module, decay=decay)
    gradients = []
    for step in range(3):
        gradients.append(gradients_of_a_step(module, step))
        moved.step()
    return before, gradients, [parameter.detach() for parameter in module.parameters()]


@pytest.mark.parametrize("decay", [DECAY, 0.0])
def test_lars_adapts_the_rate_of_matrices_and_leaves_gains_and_biases_alone(decay: float) -> None:
    """You et al. 2017, algorithm 1, with η = 0.001, the rate outside of the momentum as torch has it."""
    before, gradients, after = walked("lars", decay=decay)
    for number, (start, expected) in enumerate(zip(before, after, strict=True)):
        parameter, velocity = start, torch.zeros_like(start)
        for step in range(3):
            gradient = gradients[step][number]
            if parameter.ndim > 1:
                size, slope = parameter.norm(), gradient.norm()
                adapted = 0.001 * size / (slope + decay * size)
                gradient = adapted * (gradient + decay * parameter)
            velocity = MOMENTUM * velocity + gradient
            parameter = parameter - RATE * velocity
        torch.testing.assert_close(parameter, expected, rtol=1e-6, atol=1e-9)


def test_sgd_decays_matrices_only_and_has_momentum() -> None:
    before, gradients, after = walked("sgd", decay=DECAY)
    for number, (start, expected) in enumerate(zip(before, after, strict=True)):
        parameter, velocity = start, torch.zeros_like(start)
        for step in range(3):
            decayed = DECAY * parameter if parameter.ndim > 1 else torch.zeros_like(parameter)
            velocity = MOMENTUM * velocity + gradients[step][number] + decayed
            parameter = parameter - RATE * velocity
        torch.testing.assert_close(parameter, expected)


@pytest.mark.parametrize("name", ["adamw", "sgd", "lars"])
def test_each_parameter_with_gradients_is_moved_once_and_no_other(name: str) -> None:
    module = network()
    module[0].requires_grad_(False)
    built = optimiser_of(name, [module, module[2]], learning_rate=RATE, weight_decay=DECAY, momentum=MOMENTUM)  # type: ignore[arg-type]
    moved = [id(parameter) for group in built.param_groups for parameter in group["params"]]
    assert sorted(moved) == sorted(id(parameter) for layer in module[1:] for parameter in layer.parameters())
    decays = {group["weight_decay"]: [p.ndim for p in group["params"]] for group in built.param_groups}
    assert decays == {DECAY: [2], 0.0: [1, 1, 1]}


def test_the_rate_rises_in_a_line_and_falls_by_half_a_cosine_to_nothing() -> None:
    factors = [Schedule(steps=12, warmup_steps=4).factor(step) for step in range(13)]
    assert factors[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert factors[8] == pytest.approx(0.5)  # half way through the rest
    assert factors[12] == pytest.approx(0.0)
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert Schedule(steps=4, warmup_steps=0).factor(0) == 1.0
    assert [Schedule(steps=2, warmup_steps=2).factor(step) for step in range(3)] == [0.5, 1.0, 1.0]


def test_groups_can_have_schedules_of_their_own() -> None:
    built = optimiser("sgd", network())
    found = scheduled(built, [Schedule(10, 0).factor, lambda _step: 0.25])
    for _ in range(5):
        built.step()
        found["lr_scheduler"]["scheduler"].step()
    assert [group["lr"] for group in built.param_groups] == pytest.approx([RATE / 2, RATE / 4])
    assert built.param_groups[0]["initial_lr"] == RATE
    assert found["lr_scheduler"]["interval"] == "step"
