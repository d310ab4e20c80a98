from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.small_map_convolution import SmallMapConvolution, mend_small_maps

CASES = [(3, 2, 1), (3, 2, 2), (3, 2, 4), (3, 2, 5), (7, 2, 1), (7, 2, 8), (5, 3, 2), (5, 4, 3)]


def convolution(kernel: int, stride: int) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(16, 32, kernel, stride=stride, padding=kernel // 2, bias=False)


def drawn(side: int) -> Tensor:
    return torch.randn(64, 16, side, side, generator=torch.Generator().manual_seed(1))


def gradient(layer: nn.Conv2d, pixels: Tensor) -> Tensor:
    return torch.autograd.grad(layer(pixels).square().sum(), layer.weight)[0]


@pytest.mark.parametrize(("kernel", "stride", "side"), CASES)
def test_output_and_gradient_are_those_of_torch_in_double_precision(kernel: int, stride: int, side: int) -> None:
    plain, mended = convolution(kernel, stride).double(), convolution(kernel, stride).double()
    mend_small_maps(mended)
    pixels = drawn(side).double()
    torch.testing.assert_close(mended(pixels), plain(pixels))
    torch.testing.assert_close(gradient(mended, pixels), gradient(plain, pixels))


@pytest.mark.parametrize(("kernel", "stride", "side"), CASES)
def test_gradients_in_bfloat16_are_right_whatever_lay_in_memory(kernel: int, stride: int, side: int) -> None:
    mended = convolution(kernel, stride)
    mend_small_maps(mended)
    expected = gradient(convolution(kernel, stride).double(), drawn(side).double())
    for _ in range(3):
        # Freed memory is handed out again: what is not written shows.
        stale = [torch.full((expected.numel() + extra,), float("nan")) for extra in range(4)]
        del stale
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = gradient(mended, drawn(side)).double()
        assert float((found - expected).abs().max() / expected.abs().max()) < 0.03


def test_only_convolutions_that_keep_the_middle_are_changed() -> None:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.Conv2d(3, 8, 3, stride=1, padding=1),
        nn.Conv2d(3, 8, 4, stride=4),
        nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="reflect"),
    )
    mend_small_maps(layers)
    assert [type(layer) for layer in layers] == [SmallMapConvolution, nn.Conv2d, nn.Conv2d, nn.Conv2d]


def test_backbones_are_built_with_it() -> None:
    backbone = build_backbone(BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]}), 16)
    strided = [each for each in backbone.modules() if isinstance(each, nn.Conv2d) and max(each.stride) > 1]
    assert strided
    assert all(isinstance(each, SmallMapConvolution) for each in strided if each.padding != (0, 0))
