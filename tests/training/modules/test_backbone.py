from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from twinlens.training.errors import ConfigError
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

SMALL: dict[str, Any] = {"layers": [1, 1, 1, 1], "channels": [8, 16, 16, 32]}
SMALL_VIT: dict[str, Any] = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}


def test_a_backbone_is_the_timm_model_without_its_classifier() -> None:
    torch.manual_seed(0)
    backbone = build_backbone(BackboneConfig(arguments=SMALL), 32).eval()
    model: Any = timm.create_model("resnet18", num_classes=10, **SMALL).eval()
    model.load_state_dict(backbone.trunk.state_dict() | {k: v for k, v in model.state_dict().items() if "fc" in k})
    pixels = torch.randn(3, 3, 32, 32)
    assert torch.equal(backbone(pixels), model.forward_head(model.forward_features(pixels), pre_logits=True))
    assert (backbone.dim, backbone.is_vit) == (32, False)


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 1), ("cifar_stride2", 2), ("cifar", 4)])
def test_stems_decide_how_fine_the_maps_are(stem: Any, side: int) -> None:
    backbone = build_backbone(BackboneConfig(stem=stem, arguments=SMALL), 32)
    assert backbone.maps(torch.zeros(2, 3, 32, 32)).shape == (2, 32, side, side)
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, 32)


def test_a_resnet_takes_the_crops_of_another_size() -> None:
    backbone = build_backbone(BackboneConfig(arguments=SMALL), 64)
    assert backbone(torch.zeros(2, 3, 40, 40)).shape == (2, 32)


def test_a_vit_is_built_for_the_size_and_takes_others() -> None:
    backbone = build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments=SMALL_VIT), 32)
    assert backbone.is_vit
    assert backbone.trunk.pos_embed.shape == (1, 17, 32)
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, 32)
    assert backbone(torch.zeros(2, 3, 16, 16)).shape == (2, 32)
    assert backbone.maps(torch.zeros(2, 3, 32, 32)).shape == (2, 17, 32)


def test_the_length_of_features_is_that_behind_pooling() -> None:
    backbone = build_backbone(BackboneConfig(timm="mobilenetv3_small_050"), 32).eval()
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, backbone.dim)
    assert backbone.maps(torch.zeros(2, 3, 32, 32)).shape[1] < backbone.dim


def test_fresh_weights_follow_the_seed() -> None:
    weights = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        weights.append(build_backbone(BackboneConfig(stem="cifar", arguments=SMALL), 32).state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["trunk.conv1.weight"], weights[2]["trunk.conv1.weight"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"timm": "resnet81"}, "timm has no model 'resnet81'; perhaps .*resnet18"),
        ({"timm": "hf-hub:someone/model"}, "timm has no model 'hf-hub:someone/model'"),
        ({"timm": "resnet18.a1_in1k"}, "'a1_in1k' names trained weights, but training starts from fresh .*'resnet18'"),
        ({"arguments": {"features_only": True}}, "arguments may not set 'features_only'"),
        ({"arguments": {"colour": "blue"}}, "timm cannot build resnet18: .*colour"),
        ({"arguments": {"pretrained": True}}, "arguments may not set 'pretrained'"),
        ({"arguments": {"num_classes": 10}}, "arguments may not set 'num_classes'"),
        ({"arguments": {"in_chans": 1}}, "arguments may not set 'in_chans'"),
        ({"timm": "vit_tiny_patch16_224", "arguments": {"img_size": 8}}, "arguments may not set 'img_size'"),
        ({"arguments": {"layers": [1, 1]}}, "does not take pictures of 32x32: .*layer3"),
        ({"timm": "vit_tiny_patch16_224", "arguments": {"global_pool": ""}}, "gives no pooled features"),
        ({"timm": "vit_tiny_patch16_224", "stem": "cifar"}, "vit_tiny_patch16_224 is no ResNet with a plain stem"),
        ({"timm": "resnet18d", "stem": "cifar"}, "resnet18d is no ResNet with a plain stem"),
        ({"timm": "vit_tiny_patch16_224", "arguments": {"patch_size": 64}}, "does not take pictures of 32x32|cannot"),
        ({"timm": "inception_v3"}, "does not take pictures of 32x32"),
    ],
)
def test_backbones_that_cannot_be_built_say_why(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        build_backbone(BackboneConfig(**config), 32)
    assert len(str(raised.value).splitlines()) == 1
