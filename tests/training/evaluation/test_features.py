"""Embedding a set of pictures leaves the network as it was, and sees what serving sees."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import preprocess
from twinlens.training.evaluation.features import FeaturesError, as_evaluated, embed_pictures, normalised

SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def pictures(count: int, side: int = 16) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_every_picture_is_embedded_on_its_own() -> None:
    pixels = pictures(10)
    together = embed_pictures(network(), pixels, SPEC, batch_size=4)
    alone = torch.cat([embed_pictures(network(), pixels[i : i + 1], SPEC) for i in range(10)])
    assert together.shape == (10, 4)
    torch.testing.assert_close(together, alone)


def test_modes_statistics_gradients_and_chance_are_left_alone() -> None:
    net = network()
    net[1].eval()  # a part that was frozen
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    embed_pictures(net, pictures(5), SPEC)
    assert [part.training for part in net] == [True, False, True, True, True, True]
    assert net.training
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name])
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_modes_come_back_after_an_error() -> None:
    net = network()
    with pytest.raises(RuntimeError, match="x"), as_evaluated(net):
        raise RuntimeError("x")
    assert net.training


def test_autocast_around_it_changes_nothing() -> None:
    pixels = pictures(3)
    plain = embed_pictures(network(), pixels, SPEC)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(embed_pictures(network(), pixels, SPEC), plain, rtol=0, atol=0)


def test_pixels_are_normalised_as_the_preprocessing_says() -> None:
    pixels = torch.from_numpy(pictures(2))
    found = normalised(pixels, SPEC)
    assert found.shape == (2, 3, 16, 16)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert found[1, 2, 3, 4].item() == pytest.approx((pixels[1, 3, 4, 2].item() / 255 - 0.6) / 0.3, abs=1e-5)


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_larger_pictures_are_resized_as_serving_does(how: Literal["bilinear", "bicubic"]) -> None:
    pixels = pictures(1, side=24) // 2 + 64  # Pillow cuts off what overshoots between its two passes
    spec = SPEC.model_copy(update={"interpolation": how})
    found = normalised(torch.from_numpy(pixels), spec)
    # Serving rounds to whole levels after each pass.
    np.testing.assert_allclose(found[0], preprocess(pixels[0], spec), atol=1.01 / 255 / 0.2)


def test_features_that_are_not_finite_are_one_line() -> None:
    net = network()
    net[0].weight.data.fill_(float("inf"))  # type: ignore[operator]
    with pytest.raises(FeaturesError, match=r"not finite: train with a lower learning_rate or in fp32$"):
        embed_pictures(net, pictures(3), SPEC)
