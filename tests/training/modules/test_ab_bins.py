from __future__ import annotations

import math

import torch
from torch import Tensor

from twinlens.training.modules.ab_bins import AbBins, reachable_bins
from twinlens.training.modules.lab_colour import lab_of


def ab_of_drawn(count: int) -> Tensor:
    rgb = torch.rand(1, 3, count, 1, generator=torch.Generator().manual_seed(0))
    return lab_of(rgb)[:, 1:]


def test_there_are_261_bins_and_a_finer_look_finds_no_more() -> None:
    bins = reachable_bins()
    assert bins.shape == (261, 2)
    assert torch.equal(bins, reachable_bins(step=3))
    assert len(torch.unique(bins, dim=0)) == 261
    assert not (bins % 10).any()
    assert [0.0, 0.0] in bins.tolist()


def test_every_colour_lies_in_its_nearest_bin() -> None:
    bins = AbBins()
    ab = ab_of_drawn(2000)
    nearest = bins.centres_q2[bins.soft(ab)[0][..., 0]]
    assert float((nearest - ab.permute(0, 2, 3, 1)).abs().max()) <= 5 + 1e-4


def test_shares_equal_the_slow_transcription() -> None:
    bins = AbBins()
    ab = ab_of_drawn(20)
    found, shares = bins.soft(ab)
    centres = bins.centres_q2.double().tolist()
    for pixel in range(20):
        a, b = ab[0, :, pixel, 0].double().tolist()
        distances = sorted((math.hypot(a - x, b - y), q) for q, (x, y) in enumerate(centres))[:5]
        kernel = [math.exp(-(distance**2) / (2 * 5.0**2)) for distance, _ in distances]
        expected = {q: value / sum(kernel) for value, (_, q) in zip(kernel, distances, strict=True)}
        given = dict(zip(found[0, pixel, 0].tolist(), shares[0, pixel, 0].tolist(), strict=True))
        assert given.keys() == expected.keys()
        assert all(abs(given[q] - expected[q]) < 1e-4 for q in expected)


def test_the_nearest_bin_has_the_largest_share_and_shares_sum_to_one() -> None:
    _, shares = AbBins(neighbours=4, sigma=8.0).soft(ab_of_drawn(500))
    assert shares.shape == (1, 500, 1, 4)
    torch.testing.assert_close(shares.sum(dim=-1), torch.ones(1, 500, 1))
    assert bool((shares.diff(dim=-1) <= 1e-6).all())


def test_one_neighbour_is_a_hard_assignment() -> None:
    _, shares = AbBins(neighbours=1).soft(ab_of_drawn(10))
    assert bool((shares == 1).all())
