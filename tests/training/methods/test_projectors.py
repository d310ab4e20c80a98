"""What Barlow Twins and VICReg have in common: one wide projector, and a loss that is never computed in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.small_runs import RESNET, empty_batch, random_views, small_backbone
from twinlens.training.methods.barlow_twins import BarlowTwins, BarlowTwinsOptions
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.vicreg import VICReg, VICRegOptions

PLAN = RunPlan(steps=10, batch_size=8, dataset_size=32, size=16, learning_rate=0.01, log_every=1)
METHODS: dict[str, Callable[[], Any]] = {
    "barlow_twins": lambda: BarlowTwins(small_backbone(RESNET), BarlowTwinsOptions(dim=24), PLAN),
    "vicreg": lambda: VICReg(small_backbone(RESNET), VICRegOptions(dim=24), PLAN),
}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Any:
    return METHODS[request.param]()


def test_the_projector_has_three_layers_and_ends_in_a_linear_one(method: Any) -> None:
    layers = list(method.head)
    assert [each.out_features for each in layers if isinstance(each, nn.Linear)] == [24, 24, 24]
    assert isinstance(layers[-1], nn.Linear)
    assert layers[-1].bias is None


def test_every_parameter_learns_and_the_encoder_is_what_leaves(method: ImageMethod) -> None:
    torch.autograd.backward(method.step(random_views(), empty_batch()).loss)
    # A bias before batch norm changes nothing, and has a gradient of zeros.
    assert [name for name, each in method.named_parameters() if each.grad is None] == []
    assert method.exported() is method.backbone


def test_autocast_does_not_reach_the_loss(method: ImageMethod) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert method.step(random_views(), empty_batch()).loss.dtype == torch.float32
