"""What stands in the place of a batch norm and computes its statistics otherwise."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class BatchNormStandIn(nn.Module):
    """Takes over a batch norm; in evaluation nothing differs, in training a subclass says what.

    Parameters, buffers and their names are those of the norm, so that weights are exchanged freely with the plain
    network.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: _BatchNorm) -> None:
        """Takes over the parameters and buffers of `norm`.

        Args:
            norm: With running statistics and a fixed momentum, as all of timm's.

        Raises:
            ValueError: if the norm is of another kind.
        """
        super().__init__()
        known = {nn.BatchNorm1d, nn.BatchNorm2d, BatchNormAct2d}
        if type(norm) not in known or not norm.track_running_stats or norm.momentum is None:
            raise ValueError(f"nothing can stand in for this {type(norm).__name__}")
        self.eps = norm.eps
        self.momentum = norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        # timm's fused kind brings its activation.
        self.drop: nn.Module = getattr(norm, "drop", nn.Identity())
        self.act: nn.Module = getattr(norm, "act", nn.Identity())

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalises (n, c) or (n, c, h, w)."""
        normalised = self.in_training(inputs) if self.training else self._by_running_statistics(inputs)
        outputs: Tensor = self.act(self.drop(normalised))
        return outputs

    def in_training(self, inputs: Tensor) -> Tensor:
        """Normalises by statistics of the inputs, and moves the running ones."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """What printing shows."""
        return f"{len(self.running_mean)}"

    def _by_running_statistics(self, inputs: Tensor) -> Tensor:
        return F.batch_norm(inputs, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def replace_batch_norms(network: nn.Module, stand_in: Callable[[_BatchNorm], nn.Module]) -> None:
    """Puts something else in the place of every batch norm within `network`; parameters stay the same objects.

    Args:
        network: Changed in place; one without batch norm (most ViTs) stays as it is.
        stand_in: From the norm to what comes in its place.
    """
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, stand_in(child))
