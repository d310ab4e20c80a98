"""Batch norm over the pictures of all ranks, also where there is no GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers.norm_act import convert_sync_batchnorm
from torch import Tensor, nn

from twinlens.training.modules.gather import sum_over_ranks, world_size


class GlobalBatchNorm(nn.Module):
    """Normalises by the statistics of the whole batch, of which every rank holds an equal part.

    With the statistics of its own part each rank would compute something else than one process with the whole batch,
    and what shares a rank could be told from what does not (SimCLR, Chen et al. 2020, §2.2). Torch's own
    `SyncBatchNorm` does the same on GPUs only. Parameters, buffers and their names are those of the norm it stands for.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        """Takes over the parameters and buffers of `norm`, which has running statistics and a fixed momentum."""
        super().__init__()
        self.eps = norm.eps
        self.momentum = 0.1 if norm.momentum is None else norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        # timm's fused kind brings its activation.
        self.drop: nn.Module = getattr(norm, "drop", nn.Identity())
        self.act: nn.Module = getattr(norm, "act", nn.Identity())

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalises (n, c) or (n, c, h, w)."""
        normalised = self._over_ranks(inputs) if self.training else self._by_running_statistics(inputs)
        outputs: Tensor = self.act(self.drop(normalised))
        return outputs

    def extra_repr(self) -> str:
        """What printing shows."""
        return f"{len(self.running_mean)}"

    def _by_running_statistics(self, inputs: Tensor) -> Tensor:
        return F.batch_norm(inputs, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)

    def _over_ranks(self, inputs: Tensor) -> Tensor:
        # As batch norm everywhere: sums in fp32 under autocast too.
        with torch.autocast(inputs.device.type, enabled=False):
            rows = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
            everywhere = [dimension for dimension in range(rows.ndim) if dimension != 1]
            count = world_size() * rows.numel() // rows.shape[1]
            mean = sum_over_ranks(rows.sum(dim=everywhere, keepdim=True)) / count
            centred = rows - mean
            variance = sum_over_ranks(centred.square().sum(dim=everywhere, keepdim=True)) / count
            with torch.no_grad():
                self.running_mean.lerp_(mean.flatten().to(self.running_mean), self.momentum)
                unbiased = variance.flatten() * count / (count - 1)
                self.running_var.lerp_(unbiased.to(self.running_var), self.momentum)
                self.num_batches_tracked.add_(1)
            shape = variance.shape
            outputs = centred * torch.rsqrt(variance + self.eps)
            if self.weight is not None:
                outputs = outputs * self.weight.view(shape)
            if self.bias is not None:
                outputs = outputs + self.bias.view(shape)
        return outputs.to(inputs.dtype)


def share_batch_norm(network: nn.Module) -> None:
    """Makes every batch norm within `network` one over all ranks, in place; parameters stay the same objects."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) or not child.track_running_stats:
                continue
            # Torch's kernels where there are some.
            on_gpu = torch.cuda.is_available()
            shared = convert_sync_batchnorm(child) if on_gpu else GlobalBatchNorm(child)  # type: ignore[no-untyped-call]
            setattr(parent, name, shared)
