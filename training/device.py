"""Where a process computes before and after the loop, which chooses by the same rule."""

from __future__ import annotations

import torch

from twinlens.training.ranks import ALONE, Ranks


def device_of(ranks: Ranks = ALONE) -> torch.device:
    """The GPU of this process where the machine has any, else the CPU.

    Args:
        ranks: The processes that share the machine; each has a GPU of its own (`fit` refuses more than there are).
    """
    gpus = torch.cuda.device_count()
    if gpus == 0:
        return torch.device("cpu")
    return torch.device("cuda", ranks.rank % ranks.local_world_size % gpus)
