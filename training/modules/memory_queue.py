"""The queue of keys of earlier batches: negatives of MoCo, more samples for SwAV's assignment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twinlens.training.modules.gather import gather_with_gradients


class MemoryQueue(nn.Module):
    """The last K keys, first in, first out (MoCo, He et al. 2020, §3.2 and algorithm 1).

    A ring: new keys overwrite the oldest, and a batch that passes the end goes on at the beginning. Keys and position
    are buffers, so that a resumed run goes on with the same negatives. Until K keys have come, the rest is random unit
    vectors, as in the authors' code.

    Attributes:
        keys_kd: Unit vectors, float32, shape (K, d), in the order of the ring; nothing in them needs gradients.
    """

    keys_kd: Tensor
    _position: Tensor
    _pushed: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        """Fills it with random unit vectors.

        Args:
            size: K, the number of keys.
            dimension: d, their length.

        Raises:
            ValueError: if one of the two is not positive.
        """
        super().__init__()
        if min(size, dimension) < 1:
            raise ValueError(f"a queue needs a positive size and dimension, found {size} and {dimension}")
        self.register_buffer("keys_kd", F.normalize(torch.randn(size, dimension), dim=1))
        self.register_buffer("_position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("_pushed", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        """K."""
        return len(self.keys_kd)

    @property
    def is_full(self) -> bool:
        """Whether no random vector is left."""
        return int(self._pushed) >= len(self)

    @torch.no_grad()
    def push(self, keys_nd: Tensor) -> None:
        """Puts keys in the place of the oldest ones.

        To be called after the backward pass, which still needs the keys that the loss has seen. Of several ranks each
        gives its own keys, and all queues take those of all ranks, in the order of the ranks.

        Args:
            keys_nd: Shape (n, d), n at most K over all ranks; normalised inside.

        Raises:
            ValueError: if the keys do not fit.
        """
        keys = gather_with_gradients(F.normalize(keys_nd.detach().to(self.keys_kd), dim=1))
        if keys.ndim != 2 or keys.shape[1] != self.keys_kd.shape[1] or len(keys) > len(self):
            raise ValueError(f"keys {tuple(keys.shape)} do not fit into a queue {tuple(self.keys_kd.shape)}")
        places = (self._position + torch.arange(len(keys), device=self.keys_kd.device)) % len(self)
        self.keys_kd[places] = keys
        self._position.copy_((self._position + len(keys)) % len(self))
        self._pushed.add_(len(keys))


def check_queue_size(size: int, keys_per_step: int) -> None:
    """Refuses a queue that would hold no older keys, or that would cut batches in two.

    Args:
        size: K.
        keys_per_step: How many enter at once, of all ranks together.

    Raises:
        ValueError: with a size that would do.
    """
    nearest = max(2, round(size / keys_per_step)) * keys_per_step
    if size <= keys_per_step:
        raise ValueError(
            f"a queue of {size} keys is not larger than the {keys_per_step} that enter at each step: "
            f"no negatives of earlier batches would be left; take {nearest} or more"
        )
    if size % keys_per_step:
        raise ValueError(
            f"a queue of {size} keys is not a multiple of the {keys_per_step} that enter at each step: take {nearest}"
        )
