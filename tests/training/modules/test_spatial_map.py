from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.errors import ConfigError
from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.spatial_map import map_side, spatial_map

SIZE = 32
VIT = {"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "reg_tokens": 1}


def test_the_mean_of_a_resnets_map_is_its_embedding() -> None:
    backbone = build_backbone(BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]}), SIZE).eval()
    pixels = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    maps = spatial_map(backbone, pixels)
    assert maps.shape == (2, backbone.dim, map_side(backbone), map_side(backbone))
    torch.testing.assert_close(maps.mean(dim=(2, 3)), backbone(pixels))


def test_a_vits_map_holds_its_patches_row_by_row_without_other_tokens() -> None:
    backbone = build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments=VIT), SIZE).eval()
    pixels = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    maps, tokens = spatial_map(backbone, pixels), backbone.maps(pixels)
    assert map_side(backbone) == 4
    assert torch.equal(maps[:, :, 2, 1], tokens[:, 2 + 2 * 4 + 1])


def test_asking_for_the_side_leaves_the_encoder_in_training() -> None:
    backbone = build_backbone(BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]}), SIZE).train()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    assert map_side(backbone) == 1
    assert backbone.training
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


class ChannelsLast(nn.Module):
    """As Swin Transformers give their maps."""

    num_features = 8

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(3, 8)

    def forward_features(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.project(pixels.permute(0, 2, 3, 1))
        return features


def test_networks_without_a_map_in_front_of_their_embedding_are_refused() -> None:
    with pytest.raises(ConfigError, match="gives no map of its features"):
        map_side(Backbone(ChannelsLast(), BackboneConfig(), SIZE))
