"""What the ranks of a distributed run compute together, with gradients; without one, everything is its own."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


def world_size() -> int:
    """How many ranks share a batch; 1 outside a distributed run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def own_rows(n: int) -> slice:
    """Where this rank's n rows lie in what `gather_with_gradients` gives."""
    rank = dist.get_rank() if world_size() > 1 else 0
    return slice(rank * n, (rank + 1) * n)


def gather_with_gradients(own: Tensor) -> Tensor:
    """The rows of all ranks, in the order of the ranks.

    The gradient of a rank's rows is the sum of what all ranks found for them, its own included. Data-parallel training
    then takes the mean of the parameters' gradients over ranks, so the result is that of one process with the whole
    batch wherever the mean of the ranks' losses is the loss of the whole batch: each rank computes all of it, or each
    the mean over its own share. (Gathering without gradients, as `torch.distributed.all_gather` does, loses the part
    of a row's gradient that comes from its being another rank's negative.)

    Args:
        own: Shape (n, …), the same on every rank.

    Returns:
        Shape (ranks · n, …); `own` itself outside a distributed run.
    """
    if world_size() == 1:
        return own
    gathered: Tensor = _Gather.apply(own)
    return gathered


def sum_over_ranks(own: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, with gradients to every rank's summand; itself outside a distributed run."""
    if world_size() == 1:
        return own
    total: Tensor = _Sum.apply(own)
    return total


@torch.no_grad()
def gather_numbers(own: Tensor) -> Tensor:
    """The rows of all ranks in their order, of a tensor on the CPU without gradients; itself where there is but one.

    Args:
        own: Shape (n, …), the same on every rank.
    """
    if world_size() == 1:
        return own
    sent = own.cuda() if dist.get_backend() == "nccl" else own.contiguous()
    parts = [torch.empty_like(sent) for _ in range(world_size())]
    dist.all_gather(parts, sent)
    return torch.cat(parts).cpu()


@torch.no_grad()
def mean_over_ranks(own: Tensor) -> Tensor:
    """The mean of a tensor over all ranks, without gradients; itself outside a distributed run."""
    return own if world_size() == 1 else _summed(own) / world_size()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(own: Tensor) -> Tensor:
        own = own.contiguous()
        parts = [torch.empty_like(own) for _ in range(world_size())]
        dist.all_gather(parts, own)
        return torch.cat(parts)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.own_rows = own_rows(len(inputs[0]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)[ctx.own_rows]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(own: Tensor) -> Tensor:
        return _summed(own)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _summed(gradient)


def _summed(own: Tensor) -> Tensor:
    # In place on a copy: the caller's tensor may be needed elsewhere.
    total = own.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total
