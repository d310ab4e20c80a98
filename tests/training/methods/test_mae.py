from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.methods.mae import MAE, MAEOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.random_masking import random_masking

N, SIZE, SIDE = 4, 16, 4
TINY = {"patch_size": SIDE, "embed_dim": 16, "depth": 2, "num_heads": 2}


def method(vit: dict[str, Any] | None = None, **options: Any) -> MAE:
    torch.manual_seed(0)
    backbone = build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments={**TINY, **(vit or {})}), SIZE)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=SIZE)
    small = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
    return MAE(backbone, MAEOptions(**{**small, **options}), plan)


def views() -> list[Tensor]:
    return [torch.randn(N, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))]


def batch() -> PictureBatch:
    return PictureBatch(torch.zeros(N, SIZE, SIZE, 3, dtype=torch.uint8), torch.full((N,), -1), torch.arange(N), 0)


def test_loss_and_gradients_equal_those_of_lightlys_documented_method() -> None:
    from lightly.models import utils
    from lightly.models.modules.masked_vision_transformer_decoder_timm import MaskedVisionTransformerDecoderTIMM
    from lightly.models.modules.masked_vision_transformer_timm import MaskedVisionTransformerTIMM

    ours = method()
    torch.manual_seed(5)
    loss = ours.step(views(), batch()).loss
    torch.manual_seed(5)
    masking = random_masking(N, 16, 0.75)

    vit = copy.deepcopy(ours.backbone.trunk)
    encoder = MaskedVisionTransformerTIMM(vit, weight_initialization="skip", pos_embed_initialization="skip")
    decoder = MaskedVisionTransformerDecoderTIMM(num_patches=16, embed_dim=16, depth=1, num_heads=2)
    decoder.blocks.load_state_dict(ours.decoder.blocks.state_dict())
    decoder.norm.load_state_dict(ours.decoder.norm.state_dict())
    keep = torch.cat([torch.zeros(N, 1, dtype=torch.int64), masking.visible_nk + 1], dim=1)
    hidden = masking.masked_nl.nonzero()[:, 1].reshape(N, 12) + 1
    encoded = ours.decoder.embed(encoder.encode(views()[0], idx_keep=keep))
    tokens = utils.set_at_index(utils.repeat_token(ours.decoder.mask_token, (N, 17)), keep, encoded)
    predicted = ours.decoder.predict(utils.get_at_index(decoder(tokens), hidden))
    target = utils.normalize_mean_var(utils.get_at_index(utils.patchify(views()[0], SIDE), hidden - 1))
    expected = nn.functional.mse_loss(predicted, target)

    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for our_weight, their_weight in (
        (ours.backbone.trunk.patch_embed.proj.weight, vit.patch_embed.proj.weight),
        (ours.backbone.trunk.blocks[1].attn.qkv.weight, vit.blocks[1].attn.qkv.weight),
    ):
        torch.testing.assert_close(
            torch.autograd.grad(loss, our_weight, retain_graph=True)[0],
            torch.autograd.grad(expected, their_weight, retain_graph=True)[0],
            rtol=1e-4,
            atol=1e-6,
        )


def test_the_encoder_sees_a_quarter_of_the_patches() -> None:
    ours = method()
    lengths: list[int] = []
    ours.backbone.trunk.blocks[0].register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    ours.step(views(), batch())
    assert lengths == [1 + 4]


@pytest.mark.parametrize("vit", [{}, {"global_pool": "avg"}, {"class_token": False, "global_pool": "avg"}], ids=str)
def test_every_parameter_but_the_positions_learns(vit: dict[str, Any]) -> None:
    ours = method(vit)
    torch.autograd.backward(ours.step(views(), batch()).loss)
    still = {name for name, p in ours.named_parameters() if p.grad is None or not p.grad.any()}
    assert still == {"backbone.trunk.pos_embed"}


def test_steps_hide_other_patches() -> None:
    ours = method()
    assert ours.step(views(), batch()).loss.item() != ours.step(views(), batch()).loss.item()


def test_what_is_exported_sees_all_patches_and_pools_them() -> None:
    ours = method({"global_pool": "avg"}).eval()
    exported = ours.exported()
    with torch.no_grad():
        tokens = exported.maps(views()[0])
        assert tokens.shape == (N, 17, 16)
        pooled = exported.trunk.fc_norm(tokens[:, 1:].mean(dim=1))
        torch.testing.assert_close(exported(views()[0]), pooled)
    by_class = method().eval().exported()
    with torch.no_grad():
        torch.testing.assert_close(by_class(views()[0]), by_class.maps(views()[0])[:, 0])


def test_it_learns_to_fill_in_what_the_visible_patches_tell() -> None:
    ours = method({"global_pool": "avg"})
    # Each picture is one ramp all over: a single patch tells the others.
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    angles = torch.rand(N, 1, 1, generator=torch.Generator().manual_seed(1)) * 6.28
    ramps = (angles.cos() * x + angles.sin() * y).unsqueeze(1).expand(-1, 3, -1, -1)
    optimiser = torch.optim.AdamW(ours.parameters(), lr=5e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = ours.step([ramps], batch()).loss
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
    # Predicting 0 everywhere would lose (p - 1) / p.
    assert sum(losses[-5:]) / 5 < 0.3


def test_adamw_gets_the_papers_second_beta() -> None:
    groups = method().configure_optimizers()["optimizer"].param_groups
    assert all(group["betas"] == (0.9, 0.95) for group in groups)


@pytest.mark.parametrize(
    ("options", "size", "what"),
    [
        ({"mask_share": 0.99}, SIZE, "method.mask_share: hiding 0.99 of 16 patches leaves 0 visible"),
        ({"decoder_width": 18}, SIZE, "method.decoder_width"),
        ({"decoder_heads": 3}, SIZE, "method.decoder_width: 16 must be a multiple of 4 and of decoder_heads"),
        ({}, 18, "augment.size: 18 is no multiple of the patch side 4"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_first_step(options: dict[str, Any], size: int, what: str) -> None:
    backbone = build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments=TINY), SIZE)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=size)
    small = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
    with pytest.raises(ConfigError, match=what):
        MAE.check(MAEOptions(**{**small, **options}), plan, backbone)


def test_convolutional_networks_are_refused() -> None:
    backbone = build_backbone(BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]}), SIZE)
    with pytest.raises(ConfigError, match="mae needs a plain Vision Transformer"):
        MAE.check(MAEOptions(), RunPlan(steps=1, batch_size=N, dataset_size=32, size=SIZE), backbone)


@pytest.mark.parametrize(
    ("size", "side", "told"),
    [
        (32, 4, []),
        (64, 8, []),
        (32, 8, ["16 patches, of which 4 are seen: little to learn from; model.arguments.patch_size=4 makes 64"]),
        (15, 3, ["25 patches, of which 6 are seen: little to learn from"]),
    ],
)
def test_few_patches_are_told_of_with_what_makes_more(size: int, side: int, told: list[str]) -> None:
    backbone = build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments={**TINY, "patch_size": side}), size)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=size)
    assert MAE.advice(MAEOptions(), plan, backbone) == [f"a picture is cut into {line}" for line in told]
