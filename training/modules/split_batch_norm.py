"""Batch norm over parts of the batch, as MoCo needs it on one device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from twinlens.training.modules.batch_norm_stand_in import BatchNormStandIn, replace_batch_norms


class SplitBatchNorm(BatchNormStandIn):
    """Computes batch norm in training on equal parts of the batch, each normalised by its own statistics.

    On several devices every device normalises its own part of the batch; MoCo relies on it (He et al. 2020, §3.3). This
    does the same on one device. The running statistics take the mean of the parts' statistics.
    """

    def __init__(self, norm: _BatchNorm, parts: int) -> None:
        """Takes over the parameters and buffers of `norm`.

        Args:
            norm: With running statistics and a fixed momentum, as all of timm's.
            parts: How many; consecutive pictures share one.

        Raises:
            ValueError: if the norm is of another kind.
        """
        super().__init__(norm)
        self.parts = parts

    def in_training(self, inputs: Tensor) -> Tensor:
        """Normalises (n, c) or (n, c, h, w).

        Raises:
            ValueError: if the parts are not equal, or hold one value a channel each.
        """
        if len(inputs) % self.parts:
            raise ValueError(f"a batch of {len(inputs)} cannot be cut into {self.parts} equal parts")
        # With a momentum of 1 the kernel leaves each part's own statistics in these.
        means = self.running_mean.new_zeros(self.parts, len(self.running_mean))
        variances = torch.ones_like(means)
        outputs = [
            F.batch_norm(part, mean, variance, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps)
            for part, mean, variance in zip(inputs.chunk(self.parts), means, variances, strict=True)
        ]
        with torch.no_grad():
            self.running_mean.lerp_(means.mean(dim=0), self.momentum)
            self.running_var.lerp_(variances.mean(dim=0), self.momentum)
            self.num_batches_tracked.add_(1)
        return torch.cat(outputs)

    def extra_repr(self) -> str:
        """What printing shows."""
        return f"{super().extra_repr()}, parts={self.parts}"


def split_batch_norms(network: nn.Module, parts: int) -> None:
    """Makes every batch norm within `network` one over parts, in place; parameters stay the same objects.

    Args:
        network: Any; one without batch norm (most ViTs) stays as it is.
        parts: Of what the network is given at once; with 1 each rank of several still keeps its statistics to itself.

    Raises:
        ValueError: if there is a kind of batch norm that cannot be split.
    """
    replace_batch_norms(network, lambda norm: SplitBatchNorm(norm, parts))


def has_batch_norm(network: nn.Module) -> bool:
    """Whether statistics of a batch enter what `network` computes for one picture."""
    return any(isinstance(module, _BatchNorm | BatchNormStandIn) for module in network.modules())
