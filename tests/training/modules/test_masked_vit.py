from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from twinlens.training.errors import ConfigError
from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.masked_vit import check_maskable, encode_visible, start_as_mae

SIZE, PATCHES = 16, 16
TINY = {"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}


def tiny_vit(**arguments: Any) -> Backbone:
    torch.manual_seed(0)
    return build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments={**TINY, **arguments}), SIZE).eval()


def pixels(n: int = 2) -> Tensor:
    return torch.randn(n, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def visible() -> Tensor:
    return torch.stack([torch.randperm(PATCHES, generator=torch.Generator().manual_seed(i))[:4] for i in range(2)])


VARIANTS: list[dict[str, Any]] = [
    {},
    {"global_pool": "avg"},
    {"class_token": False, "global_pool": "avg"},
    {"reg_tokens": 2},
    {"no_embed_class": True},
    {"pre_norm": True},
]


@pytest.mark.parametrize("arguments", VARIANTS, ids=str)
def test_with_every_patch_visible_it_is_the_ordinary_encoder(arguments: dict[str, Any]) -> None:
    backbone = tiny_vit(**arguments)
    everything = torch.arange(PATCHES).expand(2, -1)
    expected = backbone.maps(pixels())
    if isinstance(backbone.trunk.norm, torch.nn.Identity):
        expected = backbone.trunk.fc_norm(expected)
    torch.testing.assert_close(encode_visible(backbone, pixels(), everything), expected)


def test_the_encoder_does_not_see_hidden_patches(visible: Tensor) -> None:
    backbone = tiny_vit()
    seen: list[tuple[int, ...]] = []
    backbone.trunk.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    image = pixels().requires_grad_()
    torch.autograd.backward(encode_visible(backbone, image, visible).square().sum())
    assert seen == [(2, 1 + 4, 16)]
    assert image.grad is not None
    moved = image.grad.abs().sum(dim=1).unfold(1, 4, 4).unfold(2, 4, 4).sum(dim=(-2, -1)).flatten(1)
    for i in range(2):
        assert set(moved[i].nonzero().flatten().tolist()) == set(visible[i].tolist())


def test_patches_keep_their_own_positions_whatever_their_order(visible: Tensor) -> None:
    backbone = tiny_vit()
    order = torch.tensor([2, 0, 3, 1])
    tokens = encode_visible(backbone, pixels(), visible)
    shuffled = encode_visible(backbone, pixels(), visible[:, order])
    torch.testing.assert_close(shuffled[:, 0], tokens[:, 0])
    torch.testing.assert_close(shuffled[:, 1:], tokens[:, 1:][:, order])


@pytest.mark.parametrize("arguments", [{}, {"reg_tokens": 2}, {"class_token": False, "global_pool": "avg"}], ids=str)
def test_tokens_equal_those_of_lightly(arguments: dict[str, Any], visible: Tensor) -> None:
    from lightly.models.modules.masked_vision_transformer_timm import MaskedVisionTransformerTIMM

    backbone = tiny_vit(**arguments)
    start_as_mae(backbone)
    prefix = int(backbone.trunk.num_prefix_tokens)
    theirs = MaskedVisionTransformerTIMM(
        copy.deepcopy(backbone.trunk), weight_initialization="skip", pos_embed_initialization="sincos"
    ).eval()
    keep = torch.cat([torch.arange(prefix).expand(2, -1), visible + prefix], dim=1)
    expected = theirs.encode(pixels(), idx_keep=keep)
    if isinstance(backbone.trunk.norm, torch.nn.Identity):
        expected = backbone.trunk.fc_norm(expected)
    torch.testing.assert_close(encode_visible(backbone, pixels(), visible), expected, rtol=1e-5, atol=1e-5)


def test_it_starts_with_fixed_positions_and_linear_layers_by_xavier() -> None:
    backbone = tiny_vit()
    start_as_mae(backbone)
    trunk = backbone.trunk
    assert not trunk.pos_embed.requires_grad
    assert not trunk.pos_embed[0, 0].any()  # the class token has no place
    weight = trunk.blocks[0].mlp.fc1.weight.detach()
    bound = (6 / sum(weight.shape)) ** 0.5
    assert 0.9 * bound < float(weight.abs().max()) <= bound
    assert not trunk.blocks[0].mlp.fc1.bias.any()
    patch = trunk.patch_embed.proj.weight.detach()
    assert float(patch.abs().max()) <= (6 / (len(patch) + patch[0].numel())) ** 0.5
    assert 0.01 < float(trunk.cls_token.detach().std()) < 0.03


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("resnet10t", {}, "needs a plain Vision Transformer"),
        ("vit_tiny_patch16_224", {**TINY, "pos_embed": "none"}, "needs a plain Vision Transformer"),
        ("vit_tiny_patch16_224", {**TINY, "global_pool": "map", "class_token": False}, "global_pool='avg'"),
        ("vit_tiny_patch16_224", {**TINY, "embed_dim": 18}, "multiple of 4, not 18"),
        ("vit_tiny_patch16_224", {**TINY, "patch_size": [4, 8]}, "square patches, not 4x8"),
    ],
    ids=["convolutions", "no positions", "attention pool", "odd width", "oblong patches"],
)
def test_encoders_that_cannot_leave_patches_out_are_refused(name: str, arguments: dict[str, Any], what: str) -> None:
    backbone = build_backbone(BackboneConfig(timm=name, arguments=arguments), 32)
    with pytest.raises(ConfigError, match=what):
        check_maskable(backbone)


def test_a_plain_vit_is_not_refused() -> None:
    check_maskable(tiny_vit())
