"""A batch of pictures as it enters a step: whole stored pictures, not yet augmented."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PictureBatch:
    """n pictures.

    Attributes:
        pixels_nhwc: uint8, shape (n, side, side, 3).
        labels: int64, shape (n,): the class, or -1 where unknown.
        rows: int64, shape (n,): which pictures of the data these are.
        number: Of the batch in the run, from 0; with the seed it decides the augmentation.
    """

    pixels_nhwc: Tensor
    labels: Tensor
    rows: Tensor
    number: int

    @property
    def samples(self) -> int:
        """N."""
        return len(self.rows)

    def to(self, device: torch.device) -> PictureBatch:
        """The same batch on another device."""
        return PictureBatch(
            self.pixels_nhwc.to(device, non_blocking=True),
            self.labels.to(device, non_blocking=True),
            self.rows.to(device, non_blocking=True),
            self.number,
        )
