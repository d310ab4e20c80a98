from __future__ import annotations

import pytest
import torch

from twinlens.training.errors import ConfigError
from twinlens.training.methods.image_method import MethodOptions
from twinlens.training.methods.random import Random
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

RESNET = BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]})


def test_it_exports_the_weights_that_the_seed_gave() -> None:
    assert image_method("random") is Random
    torch.manual_seed(3)
    expected = build_backbone(RESNET, 16).state_dict()
    torch.manual_seed(3)
    backbone = build_backbone(RESNET, 16)
    exported = Random(backbone, MethodOptions(), RunPlan(steps=0, batch_size=4, dataset_size=32)).exported()
    assert all(torch.equal(value, expected[name]) for name, value in exported.state_dict().items())


def test_a_run_with_steps_is_refused() -> None:
    backbone = build_backbone(RESNET, 16)
    with pytest.raises(ConfigError, match=r"train\.steps: random takes no step, but 5 are asked for; leave it at 0"):
        Random.check(MethodOptions(), RunPlan(steps=5, batch_size=4, dataset_size=32), backbone)
    Random.check(MethodOptions(), RunPlan(steps=0, batch_size=4, dataset_size=32), backbone)
