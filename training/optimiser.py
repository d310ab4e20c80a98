"""Optimisers and their schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from twinlens.training.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up over `warmup_steps` to the full rate, then half a cosine down to 0 at `steps`."""

    steps: int
    warmup_steps: int

    def factor(self, step: int) -> float:
        """The share of the full learning rate at `step`, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def adamw(
    module: nn.Module, *, learning_rate: float, weight_decay: float, rates: Mapping[str, float] | None = None
) -> torch.optim.AdamW:
    """Fused AdamW; gains, biases and the temperature (fewer than two dimensions) are not decayed.

    β₂ = 0.98 and ε = 1e-6 are those of CLIP's transformers (Radford et al. 2021, table 19).

    Args:
        module: What is trained; parameters without gradients are left out.
        learning_rate: After warm-up.
        weight_decay: Of matrices only.
        rates: Factors on the learning rate by the parameter's name in `module`; 1 where there is none.

    Raises:
        ConfigError: if nothing is left to be trained.
    """
    # First those at the full rate: the scale is always among them.
    by_rate: dict[float, list[nn.Parameter]] = {1.0: []}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            by_rate.setdefault((rates or {}).get(name, 1.0), []).append(parameter)
    if not any(by_rate.values()):
        raise ConfigError("every part of the model is locked: nothing would be trained")
    groups = [
        {**group, "lr": learning_rate * rate}
        for rate, parameters in by_rate.items()
        if parameters
        for group in _split(parameters, weight_decay)
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=True)


def optimiser_of(
    name: Literal["adamw", "sgd", "lars"],
    modules: Iterable[nn.Module],
    *,
    learning_rate: float,
    weight_decay: float,
    momentum: float,
) -> torch.optim.Optimizer:
    """The optimiser of a self-supervised run; gains and biases are not decayed.

    Args:
        name: `adamw` (ViTs), `sgd` with momentum (MoCo, SimSiam), or `lars` (large batches: SimCLR, BYOL, SwAV, Barlow
            Twins; You et al. 2017), which does not adapt the rate of gains and biases either.
        modules: What is trained; parameters without gradients are left out.
        learning_rate: After warm-up.
        weight_decay: Of matrices and filters.
        momentum: Of `sgd` and `lars`.
    """
    groups = _groups(modules, weight_decay)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=learning_rate, fused=True)
    if name == "sgd":
        # Not fused: that fails when a parameter that rested at first (SwAV's prototypes) joins those with momentum.
        return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, foreach=True)
    from timm.optim.lars import Lars  # noqa: PLC0415 - seconds, and only here

    matrices, _ = groups
    matrices["always_adapt"] = True  # without weight decay too
    return Lars(groups, lr=learning_rate, momentum=momentum)


def scheduled(
    optimiser: torch.optim.Optimizer, factor: Callable[[int], float] | list[Callable[[int], float]]
) -> dict[str, Any]:
    """What Lightning takes: an optimiser whose rates follow a schedule, one step of it a batch.

    Args:
        optimiser: With the full rates.
        factor: The share of them at a step, for all groups or one for each.
    """
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    return {"optimizer": optimiser, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def _groups(modules: Iterable[nn.Module], weight_decay: float) -> list[dict[str, object]]:
    trained = {id(p): p for module in modules for p in module.parameters() if p.requires_grad}.values()
    return _split(trained, weight_decay)


def _split(parameters: Collection[nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
