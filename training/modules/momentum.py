"""A copy of a network that follows it as an exponential moving average: the momentum encoder, target or teacher."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MomentumNetwork(nn.Module):
    """Follows another network slowly and never receives gradients (MoCo, He et al. 2020, eq. 2; BYOL, §3.1).

    After each step of the optimiser θ_k ← m θ_k + (1 - m) θ_q, for parameters and for the running statistics of batch
    norm alike; counters are copied, and so is what no checkpoint keeps, such as masks with -∞ in them. As in the
    papers' code the network computes in training mode, on the statistics of its own batches, which move its running
    statistics as well: they belong to its own, older weights.
    """

    def __init__(self, online: nn.Module) -> None:
        """Starts as a copy of `online`, which it neither holds nor changes."""
        super().__init__()
        self.network = copy.deepcopy(online).requires_grad_(False)

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """What the copy computes, without a graph."""
        outputs: Tensor = self.network(inputs)
        return outputs

    @torch.no_grad()
    def follow(self, online: nn.Module, momentum: float) -> None:
        """One step towards `online`.

        Args:
            online: Built like the network this one was copied from.
            momentum: m, the share of itself that stays: 0 copies, 1 does not move.

        Raises:
            ValueError: if the momentum is not within 0 to 1, or the networks are not built alike.
        """
        mine, theirs = _tensors(self.network), _tensors(online)
        if [t.shape for t in mine] != [t.shape for t in theirs]:
            raise ValueError("the momentum network and the network it follows are not built alike")
        average = get_ema_multi_avg_fn(momentum)  # type: ignore[no-untyped-call]
        kept = {id(tensor) for tensor in self.network.state_dict(keep_vars=True).values()}
        averaged = [a.is_floating_point() and id(a) in kept for a in mine]
        floats = [(a, b) for a, b, is_averaged in zip(mine, theirs, averaged, strict=True) if is_averaged]
        # One call for all, by dtype: hundreds of small launches would cost more than the arithmetic.
        for dtype in {a.dtype for a, _ in floats}:
            average([a for a, _ in floats if a.dtype == dtype], [b for a, b in floats if a.dtype == dtype], None)
        for a, b, is_averaged in zip(mine, theirs, averaged, strict=True):
            if not is_averaged:
                a.copy_(b)


def cosine_momentum(start: float, progress: float, *, end: float = 1.0) -> float:
    """The momentum end - (end - start) · (cos(π · progress) + 1) / 2 (BYOL, Grill et al. 2020, §3.3, with end = 1).

    Args:
        start: At the first step.
        progress: The share of the run that is behind, 0 to 1.
        end: At the last.
    """
    return end - (end - start) * (math.cos(math.pi * progress) + 1.0) / 2.0


def warmed_up_momentum(momentum: float, step: int) -> float:
    """The momentum min(m, (1 + t) / (10 + t)): the average of a young run is of young weights (as in TensorFlow's).

    With a fixed one, a run of a thousand steps and m = 0.999 would keep a third of the weights that it began with.

    Args:
        momentum: m, from which it does not rise further.
        step: t, from 0.
    """
    return min(momentum, (1 + step) / (10 + step))


def _tensors(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]
