from __future__ import annotations

import pytest
import torch

from twinlens.training.modules.corruption import corrupted


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_without_noise_the_picture_stays() -> None:
    pixels = torch.randn(2, 3, 4, 4, generator=generator())
    assert corrupted(pixels, "none", 0.5) is pixels


def test_gaussian_noise_has_the_given_deviation() -> None:
    pixels = torch.zeros(8, 3, 32, 32)
    spoiled = corrupted(pixels, "gaussian", 0.3, generator=generator())
    assert float(spoiled.std()) == pytest.approx(0.3, rel=0.02)
    assert float(spoiled.mean()) == pytest.approx(0, abs=0.01)
    assert not pixels.any()


def test_masking_blanks_the_given_share_of_places_in_all_channels_and_leaves_the_rest() -> None:
    pixels = torch.rand(8, 3, 32, 32, generator=generator()) + 1
    spoiled = corrupted(pixels, "masking", 0.25, generator=generator())
    blank = spoiled == 0
    assert torch.equal(blank, blank[:, :1].expand_as(blank))
    assert float(blank.double().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.equal(spoiled[~blank], pixels[~blank])


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_masking_nothing_and_everything_are_exact(level: float) -> None:
    pixels = torch.rand(2, 3, 8, 8, generator=generator()) + 1
    assert torch.equal(corrupted(pixels, "masking", level), pixels * (1 - level))
