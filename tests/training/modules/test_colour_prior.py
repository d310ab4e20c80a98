from __future__ import annotations

import math

import pytest
import torch

from twinlens.training.modules.ab_bins import AbBins
from twinlens.training.modules.colour_prior import ColourPrior


@pytest.fixture(scope="module")
def bins() -> AbBins:
    return AbBins()


def test_weights_equal_the_slow_transcription(bins: AbBins) -> None:
    prior = ColourPrior(bins)
    seen = torch.randint(0, bins.count, (300,), generator=torch.Generator().manual_seed(0)) // 2
    prior.see(seen)
    q = bins.count
    share = [float((seen == index).sum()) / len(seen) for index in range(q)]
    centres = bins.centres_q2.tolist()
    smooth = [0.0] * q
    for i in range(q):
        kernel = [math.exp(-(math.dist(centres[i], centres[j]) ** 2) / 50) for j in range(q)]
        for j in range(q):
            smooth[j] += share[i] * kernel[j] / sum(kernel)
    raw = [1 / (0.5 * p + 0.5 / q) for p in smooth]
    scale = sum(p * w for p, w in zip(smooth, raw, strict=True))
    assert prior.weights().tolist() == pytest.approx([w / scale for w in raw], rel=1e-5)


def test_rare_colours_count_more_and_the_expected_weight_is_one(bins: AbBins) -> None:
    prior = ColourPrior(bins)
    prior.see(torch.tensor([0] * 90 + [200] * 10))
    weights = prior.weights().double()
    assert weights[0] < weights[200] < weights[100]
    frequency = (prior.counts_q / prior.counts_q.sum()) @ prior.smoothing_qq
    assert float((frequency * weights).sum()) == pytest.approx(1, abs=1e-5)
    assert float(frequency.sum()) == pytest.approx(1, abs=1e-9)


def test_nothing_seen_or_no_rebalancing_weighs_all_alike(bins: AbBins) -> None:
    assert ColourPrior(bins).weights().tolist() == pytest.approx([1.0] * bins.count)
    prior = ColourPrior(bins, uniform_share=1.0)
    prior.see(torch.tensor([3] * 50))
    assert prior.weights().tolist() == pytest.approx([1.0] * bins.count)


def test_counts_add_up_over_batches_and_are_kept_with_the_state(bins: AbBins) -> None:
    prior = ColourPrior(bins)
    prior.see(torch.tensor([[1, 1], [2, 5]]))
    prior.see(torch.tensor([5]))
    assert prior.counts_q[[1, 2, 5]].tolist() == [2, 1, 2]
    other = ColourPrior(bins)
    other.load_state_dict(prior.state_dict())
    assert torch.equal(other.weights(), prior.weights())
