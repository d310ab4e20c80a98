"""Batch norm over parts of the batch, and the shuffling of keys between the parts, as MoCo needs them on one device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class SplitBatchNorm(nn.Module):
    """Computes batch norm in training on equal parts of the batch, each normalised by its own statistics.

    On several devices every device normalises its own part of the batch; MoCo relies on it (He et al. 2020, §3.3). This
    does the same on one device. Parameters, buffers and their names are those of the norm it stands for, so weights are
    exchanged freely with the plain network, and in evaluation nothing differs. The running statistics take the mean of
    the parts' statistics.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: _BatchNorm, parts: int) -> None:
        """Takes over the parameters and buffers of `norm`.

        Args:
            norm: With running statistics and a fixed momentum, as all of timm's.
            parts: How many; consecutive pictures share one.

        Raises:
            ValueError: if the norm is of another kind.
        """
        super().__init__()
        if type(norm) not in {nn.BatchNorm1d, nn.BatchNorm2d, BatchNormAct2d} or not norm.track_running_stats:
            raise ValueError(f"{type(norm).__name__} cannot be computed in parts")
        self.parts = parts
        self.eps = norm.eps
        self.momentum = 0.1 if norm.momentum is None else norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        # timm's fused kind brings its activation.
        self.drop: nn.Module = getattr(norm, "drop", nn.Identity())
        self.act: nn.Module = getattr(norm, "act", nn.Identity())

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalises (n, c) or (n, c, h, w).

        Raises:
            ValueError: in training, if the parts are not equal, or hold one value a channel each.
        """
        normalised = self._in_parts(inputs) if self.training else self._batch_norm(inputs)
        outputs: Tensor = self.act(self.drop(normalised))
        return outputs

    def extra_repr(self) -> str:
        """What printing shows."""
        return f"{len(self.running_mean)}, parts={self.parts}"

    def _batch_norm(self, inputs: Tensor) -> Tensor:
        return F.batch_norm(
            inputs, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )

    def _in_parts(self, inputs: Tensor) -> Tensor:
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


def split_batch_norms(network: nn.Module, parts: int) -> None:
    """Makes every batch norm within `network` one over parts, in place; parameters stay the same objects.

    Args:
        network: Any; one without batch norm (most ViTs) stays as it is.
        parts: Of this rank's share of the batch; with 1 each rank of several still keeps its statistics to itself.

    Raises:
        ValueError: if there is a kind of batch norm that cannot be split.
    """
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, SplitBatchNorm(child, parts))


def has_batch_norm(network: nn.Module) -> bool:
    """Whether statistics of a batch enter what `network` computes for one picture."""
    return any(isinstance(module, _BatchNorm | SplitBatchNorm) for module in network.modules())
