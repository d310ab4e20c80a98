from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.small_runs import RESNET, VIT, small_backbone
from twinlens.training.errors import ConfigError
from twinlens.training.modules.multi_crop import check_crop_sizes, encode_crops


def test_each_size_is_encoded_in_one_pass_and_views_keep_their_order() -> None:
    seen: list[tuple[int, ...]] = []

    def encode(pixels: Tensor) -> Tensor:
        seen.append(tuple(pixels.shape))
        return pixels.mean(dim=(2, 3))

    views = [torch.full((2, 3, side, side), float(value)) for value, side in enumerate([8, 8, 4, 4, 4])]
    features = encode_crops(encode, views)
    assert seen == [(4, 3, 8, 8), (6, 3, 4, 4)]
    for value, each in enumerate(features):
        torch.testing.assert_close(each, torch.full((2, 3), float(value)))


def test_crops_stay_in_channels_last_memory() -> None:
    def encode(pixels: Tensor) -> Tensor:
        assert pixels.is_contiguous(memory_format=torch.channels_last)
        return pixels.mean(dim=(2, 3))

    views = [torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last) for _ in range(2)]
    assert len(encode_crops(encode, views)) == 2


def test_crops_that_a_vit_cannot_cut_into_patches_are_refused_with_their_size() -> None:
    check_crop_sizes(small_backbone(VIT), [8, 12])
    with pytest.raises(ConfigError, match=r"does not take small crops of 10x10 pixels: .*leave them out"):
        check_crop_sizes(small_backbone(VIT), [8, 10])


def test_a_look_at_the_crops_leaves_the_encoder_as_it_was() -> None:
    backbone = small_backbone(RESNET).train()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    check_crop_sizes(backbone, [8])
    assert backbone.training
    torch.testing.assert_close(backbone.state_dict(), before)
