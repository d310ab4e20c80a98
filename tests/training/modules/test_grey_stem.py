from __future__ import annotations

from typing import Any

import pytest
import torch

from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.grey_stem import LUMA, fold_luma, grey_pixels

SIZE = 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BACKBONES = {
    "resnet": BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]}),
    "cifar stem": BackboneConfig(timm="resnet18", stem="cifar", arguments={"channels": [8, 8, 16, 16]}),
    "vit": BackboneConfig(
        timm="vit_tiny_patch16_224", arguments={"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
    ),
}


def build(name: str) -> Backbone:
    torch.manual_seed(0)
    return build_backbone(BACKBONES[name], SIZE).eval()


def drawn_colours() -> torch.Tensor:
    return torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def normalised(rgb: torch.Tensor) -> torch.Tensor:
    return (rgb - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_folded_encoder_makes_of_colours_what_the_other_makes_of_their_luma(name: str) -> None:
    backbone = build(name)
    rgb = drawn_colours()
    luma = torch.einsum("c,nchw->nhw", torch.tensor(LUMA), normalised(rgb))
    with torch.no_grad():
        expected = backbone(luma.unsqueeze(1).expand(-1, 3, -1, -1))
        torch.testing.assert_close(fold_luma(backbone)(normalised(rgb)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_folded_encoder_makes_of_a_grey_picture_what_training_made_of_it(name: str) -> None:
    backbone = build(name)
    grey = drawn_colours()[:, 0]
    with torch.no_grad():
        trained = backbone(grey_pixels(grey, MEAN, STD))
        served = fold_luma(backbone)(normalised(grey.unsqueeze(1).expand(-1, 3, -1, -1)))
    torch.testing.assert_close(served, trained, rtol=1e-4, atol=1e-5)


def test_the_encoder_itself_is_not_changed() -> None:
    backbone = build("resnet")
    before: dict[str, Any] = {name: value.clone() for name, value in backbone.state_dict().items()}
    folded = fold_luma(backbone)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    changed = [n for n, value in folded.state_dict().items() if not torch.equal(value, before[n])]
    assert len(changed) == 1


def test_a_network_that_takes_no_pictures_is_refused() -> None:
    backbone = build("resnet")
    backbone.trunk.conv1 = torch.nn.Identity()
    with pytest.raises(ValueError, match="no first convolution"):
        fold_luma(backbone)
