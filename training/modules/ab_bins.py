"""The quantised colours that colourisation chooses from."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from twinlens.training.modules.lab_colour import lab_of

GRID = 10.0


@lru_cache(maxsize=4)
def reachable_bins(step: int = 4) -> Tensor:
    """The points of a grid of 10 in a*b* that some sRGB colour is nearest to (Zhang et al. 2016, §2.1, fig. 3a).

    The paper counts 313 with a gamut that its authors do not give; sRGB as IEC 61966 has it reaches 261. A point that
    no colour is nearest to would be an output that is never right.

    Args:
        step: Between the 8-bit values of each channel that are looked at; 4 and less find the same bins.

    Returns:
        float32, shape (q, 2), sorted by a*, then b*; not to be changed.
    """
    values = torch.tensor([*range(0, 255, step), 255], dtype=torch.float64) / 255
    rgb = torch.cartesian_prod(values, values, values)
    ab = lab_of(rgb.T.reshape(1, 3, -1, 1))[0, 1:, :, 0].T
    points: Tensor = torch.unique((ab / GRID).round(), dim=0)
    return (points * GRID).float()


class AbBins(nn.Module):
    """Soft assignment of colours to bins.

    Attributes:
        centres_q2: a* and b* of each bin, shape (q, 2).
    """

    centres_q2: Tensor

    def __init__(self, *, neighbours: int = 5, sigma: float = 5.0) -> None:
        """Takes how soft the assignment is; the defaults are the paper's.

        Args:
            neighbours: Bins that share a colour.
            sigma: Of the Gaussian by which they share it, in units of a* and b*.
        """
        super().__init__()
        self.neighbours = neighbours
        self.sigma = sigma
        self.register_buffer("centres_q2", reachable_bins().clone(), persistent=False)

    @property
    def count(self) -> int:
        """How many bins there are."""
        return len(self.centres_q2)

    def soft(self, ab_n2hw: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest bins of each colour and their shares, ∝ exp(−d²/2σ²) (Zhang et al. 2016, §2.1).

        Args:
            ab_n2hw: a* and b*, shape (n, 2, h, w).

        Returns:
            int64 bins, the nearest first, and shares that sum to 1, both of shape (n, h, w, neighbours).
        """
        ab = ab_n2hw.permute(0, 2, 3, 1).float()
        distances = torch.cdist(
            ab.reshape(-1, 2), self.centres_q2, compute_mode="donot_use_mm_for_euclid_dist"
        ).reshape(*ab.shape[:3], self.count)
        nearest, bins = distances.topk(self.neighbours, dim=-1, largest=False, sorted=True)
        return bins, (-nearest.square() / (2 * self.sigma**2)).softmax(dim=-1)
