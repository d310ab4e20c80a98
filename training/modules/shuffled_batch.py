"""Computing a batch in random order, so that batch norm sees other neighbours (MoCo's shuffling of keys)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from twinlens.training.modules.gather import gather_with_gradients, own_rows, world_size


@torch.no_grad()
def computed_shuffled(network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Computes `network(inputs)` on the pictures of all ranks, dealt out anew; without a graph.

    Where queries are normalised together and the keys of the same pictures are as well, both carry a signature of those
    pictures, by which the positive is found without looking at it (MoCo, He et al. 2020, §3.3). In random order the
    keys that share statistics are others than the queries that do. On one rank this needs a batch norm that works on
    parts of the batch (`SplitBatchNorm`): the statistics of the whole do not depend on the order.

    Args:
        network: From (n, …) to (n, d).
        inputs: This rank's part of the batch, equally many on all ranks.

    Returns:
        What the network gives, in the order of `inputs`.
    """
    n = len(inputs)
    channels_last = inputs.ndim == 4 and inputs.is_contiguous(memory_format=torch.channels_last)
    everything = gather_with_gradients(inputs)
    order = torch.randperm(len(everything), device=inputs.device)
    if world_size() > 1:
        dist.broadcast(order, src=0)
    mine = own_rows(n)
    dealt = everything[order[mine]]
    # Picking rows may lose the layout, which convolutions are faster in.
    outputs = network(dealt.contiguous(memory_format=torch.channels_last) if channels_last else dealt)
    return gather_with_gradients(outputs)[order.argsort()[mine]]
