from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.methods.autoencoder import Autoencoder, AutoencoderOptions, coarsest_side
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

N, SIZE = 4, 16
RESNET = BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]})
VIT = BackboneConfig(
    timm="vit_tiny_patch16_224", arguments={"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
)


def method(backbone: BackboneConfig = RESNET, size: int = SIZE, **options: Any) -> Autoencoder:
    torch.manual_seed(0)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=size)
    return Autoencoder(build_backbone(backbone, size), AutoencoderOptions(**{"width": 16, **options}), plan)


def views(size: int = SIZE) -> list[Tensor]:
    return [torch.randn(N, 3, size, size, generator=torch.Generator().manual_seed(3))]


def batch() -> PictureBatch:
    return PictureBatch(torch.zeros(N, SIZE, SIZE, 3, dtype=torch.uint8), torch.full((N,), -1), torch.arange(N), 0)


def shown(trained: Autoencoder) -> Tensor:
    seen: list[Tensor] = []
    trained.backbone.trunk.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    trained.step(views(), batch())
    return seen[0]


def test_the_loss_is_the_mean_squared_difference_from_the_picture() -> None:
    trained = method(noise="none").eval()
    rebuilt = trained.decoder(trained.backbone(views()[0]))
    assert rebuilt.shape == views()[0].shape
    expected = sum(float(d) ** 2 for d in (rebuilt - views()[0]).detach().flatten()) / rebuilt.numel()
    assert trained.step(views(), batch()).loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_spoiled_picture_is_shown_and_the_clean_one_is_the_target() -> None:
    trained = method(noise="masking", noise_level=0.5)
    torch.manual_seed(1)
    spoiled = shown(trained)
    blank = spoiled == 0
    assert 0.3 < float(blank.double().mean()) < 0.7
    assert torch.equal(spoiled[~blank], views()[0][~blank])
    trained.eval()
    torch.manual_seed(2)
    loss = trained.step(views(), batch()).loss
    torch.manual_seed(2)
    rebuilt = trained.decoder(trained.backbone(shown(trained)))
    torch.testing.assert_close(loss, (rebuilt - views()[0]).square().mean())


def test_a_plain_autoencoder_is_shown_the_picture_itself() -> None:
    assert torch.equal(shown(method(noise="none")), views()[0])


@pytest.mark.parametrize("backbone", [RESNET, VIT], ids=["resnet", "vit"])
def test_every_parameter_learns_through_the_embedding_that_is_exported(backbone: BackboneConfig) -> None:
    trained = method(backbone, noise="none").eval()
    output = trained.step(views(), batch())
    torch.testing.assert_close(output.embeddings[0], trained.exported()(views()[0]))
    torch.autograd.backward(output.loss)
    assert all(p.grad is not None for p in trained.parameters())


@pytest.mark.parametrize("size", [16, 20, 32, 33])
def test_pictures_of_any_size_are_rebuilt(size: int) -> None:
    trained = method(size=size)
    assert bool(torch.isfinite(trained.step(views(size), batch()).loss))


@pytest.mark.parametrize(("size", "side"), [(4, 4), (16, 4), (32, 4), (64, 4), (96, 3), (33, 3), (224, 4)])
def test_the_decoder_starts_from_a_map_of_at_most_four(size: int, side: int) -> None:
    assert coarsest_side(size) == side


def test_it_learns_to_rebuild_a_few_pictures() -> None:
    trained = method(noise="none", width=32)
    flat = torch.randn(N, 3, 1, 1, generator=torch.Generator().manual_seed(4)).expand(-1, -1, SIZE, SIZE)
    optimiser = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = trained.step([flat], batch()).loss
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_blanking_every_pixel_is_refused() -> None:
    plan = RunPlan(steps=1, batch_size=N, dataset_size=32, size=SIZE)
    backbone = build_backbone(RESNET, SIZE)
    with pytest.raises(ConfigError, match=r"method\.noise_level: .* 1 leaves none; take less than 1"):
        Autoencoder.check(AutoencoderOptions(noise="masking", noise_level=1.0), plan, backbone)
    Autoencoder.check(AutoencoderOptions(noise="gaussian", noise_level=1.0), plan, backbone)
