"""How common each colour is, and how much more the rare ones count."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from twinlens.training.modules.ab_bins import AbBins
from twinlens.training.modules.gather import sum_over_ranks


class ColourPrior(nn.Module):
    """Counts colours as batches pass, and weighs them against their frequency (Zhang et al. 2016, §2.2, eqs. 3 and 4).

    The authors count once, over all of ImageNet; here the pictures of the run are counted as they are seen, so that
    any collection will do: after the first few batches little changes. The counts are kept with the run's state.
    """

    counts_q: Tensor
    smoothing_qq: Tensor

    def __init__(self, bins: AbBins, *, uniform_share: float = 0.5) -> None:
        """Takes the bins and how far frequencies are mixed with equal ones.

        Args:
            bins: Their spread σ also smooths the frequencies.
            uniform_share: λ in eq. 4: 1 weighs all colours alike, 0 by inverse frequency.
        """
        super().__init__()
        self._uniform_share = uniform_share
        self.register_buffer("counts_q", torch.zeros(bins.count, dtype=torch.float64))
        distances = torch.cdist(bins.centres_q2.double(), bins.centres_q2.double())
        kernel = torch.exp(-distances.square() / (2 * bins.sigma**2))
        # Each bin passes on all of its mass, also at the edge of the gamut.
        self.register_buffer("smoothing_qq", kernel / kernel.sum(dim=1, keepdim=True), persistent=False)

    @torch.no_grad()
    def see(self, nearest: Tensor) -> None:
        """Counts the pixels of a batch, over all ranks.

        Args:
            nearest: int64, any shape: the nearest bin of each pixel.
        """
        new = torch.bincount(nearest.reshape(-1), minlength=len(self.counts_q)).to(self.counts_q)
        self.counts_q += sum_over_ranks(new)

    def weights(self) -> Tensor:
        """Weights w ∝ ((1 − λ) p̃ + λ/q)⁻¹ with Σ_q p̃_q w_q = 1; p̃ is the smoothed frequency; shape (q,)."""
        total = self.counts_q.sum()
        size = len(self.counts_q)
        equal = torch.full_like(self.counts_q, 1 / size)
        frequency = torch.where(total > 0, (self.counts_q / total.clamp_min(1)) @ self.smoothing_qq, equal)
        weights = 1 / ((1 - self._uniform_share) * frequency + self._uniform_share * equal)
        return (weights / (frequency * weights).sum()).float()
