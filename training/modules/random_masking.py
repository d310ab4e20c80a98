"""Which patches of a picture an encoder sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Masking:
    """A choice of visible patches, as many in every picture.

    Attributes:
        visible_nk: int64, shape (n, k): their places, in random order.
        masked_nl: bool, shape (n, l): True where a patch is hidden.
    """

    visible_nk: Tensor
    masked_nl: Tensor


def visible_count(patches: int, mask_share: float) -> int:
    """How many of `patches` stay visible, to the nearest whole one.

    Raises:
        ValueError: unless at least one is visible and one hidden.
    """
    visible = patches - round(patches * mask_share)
    if not 0 < visible < patches:
        raise ValueError(f"hiding {mask_share:g} of {patches} patches leaves {visible} visible")
    return visible


def random_masking(
    n: int,
    patches: int,
    mask_share: float,
    *,
    device: torch.device | None = None,
    generator: torch.Generator | None = None,
) -> Masking:
    """Hides a uniformly random subset of fixed size in every picture (MAE, He et al. 2022, §3: without replacement).

    Args:
        n: Pictures.
        patches: Of a picture.
        mask_share: Share of hidden ones; 0.75 in the paper.
        device: Of the results.
        generator: Of that device; None: torch's own.

    Raises:
        ValueError: unless at least one patch is visible and one hidden.
    """
    visible = visible_count(patches, mask_share)
    order = torch.rand(n, patches, device=device, generator=generator).argsort(dim=1)
    kept = order[:, :visible]
    masked = torch.ones(n, patches, dtype=torch.bool, device=device).scatter(1, kept, False)
    return Masking(kept, masked)
