"""Batch norm over the pictures of all ranks, also where there is no GPU."""

from __future__ import annotations

import torch
from timm.layers.norm_act import convert_sync_batchnorm
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from twinlens.training.modules.batch_norm_stand_in import BatchNormStandIn, replace_batch_norms
from twinlens.training.modules.gather import sum_over_ranks, world_size


class GlobalBatchNorm(BatchNormStandIn):
    """Normalises by the statistics of the whole batch, of which every rank holds an equal part.

    With the statistics of its own part each rank would compute something else than one process with the whole batch,
    and what shares a rank could be told from what does not (SimCLR, Chen et al. 2020, §2.2). Torch's own
    `SyncBatchNorm` does the same on GPUs only.
    """

    def in_training(self, inputs: Tensor) -> Tensor:
        """Normalises (n, c) or (n, c, h, w), n equal on all ranks."""
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
    """Makes every batch norm within `network` one over all ranks, in place; parameters stay the same objects.

    Raises:
        ValueError: if there is a kind of batch norm that cannot be shared.
    """
    replace_batch_norms(network, _shared)


def _shared(norm: _BatchNorm) -> nn.Module:
    # Torch's kernels where there are some.
    if torch.cuda.is_available():
        shared: nn.Module = convert_sync_batchnorm(norm)  # type: ignore[no-untyped-call]
        return shared
    return GlobalBatchNorm(norm)
