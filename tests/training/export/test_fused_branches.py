from __future__ import annotations

from typing import Any

import timm
import torch
from torch import nn

from tests.support.tiny_weights import awaken
from twinlens.training.export.fused_branches import fuse_branches


def convolutions(model: nn.Module) -> int:
    return sum(isinstance(module, nn.Conv2d) for module in model.modules())


def test_fused_branches_compute_the_same_with_fewer_convolutions() -> None:
    torch.manual_seed(0)
    model: Any = awaken(timm.create_model("fastvit_t8", num_classes=0))
    fused = fuse_branches(model)
    assert convolutions(fused) < convolutions(model)
    pixels = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        wanted, found = model(pixels), fused(pixels)
    unit = torch.nn.functional.normalize
    assert (unit(wanted, dim=-1) - unit(found, dim=-1)).abs().max() <= 1e-5


def test_a_model_without_branches_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    assert fuse_branches(model) is model
