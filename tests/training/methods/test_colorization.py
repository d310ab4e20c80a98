from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.losses.rebalanced_colour import rebalanced_cross_entropy
from twinlens.training.methods.colorization import Colorization, ColorizationOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.lab_colour import grey_of_lightness, lab_of
from twinlens.training.modules.spatial_map import spatial_map

N, SIZE = 4, 16
RESNET = BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]})
VIT = BackboneConfig(
    timm="vit_tiny_patch16_224", arguments={"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
)


def method(backbone: BackboneConfig = RESNET, **options: Any) -> Colorization:
    torch.manual_seed(0)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=SIZE)
    return Colorization(build_backbone(backbone, SIZE), ColorizationOptions(**{"width": 16, **options}), plan)


def rgb(seed: int = 0) -> Tensor:
    return torch.rand(N, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


def views(colours: Tensor) -> list[Tensor]:
    plan = RunPlan(steps=1, batch_size=N, dataset_size=N)
    return [(colours - torch.tensor(plan.mean).view(3, 1, 1)) / torch.tensor(plan.std).view(3, 1, 1)]


def batch() -> PictureBatch:
    return PictureBatch(torch.zeros(N, SIZE, SIZE, 3, dtype=torch.uint8), torch.full((N,), -1), torch.arange(N), 0)


def shown(trained: Colorization, colours: Tensor) -> Tensor:
    """What the encoder is given for pictures of these colours."""
    seen: list[Tensor] = []
    hook = trained.backbone.trunk.conv1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    trained.step(views(colours), batch())
    hook.remove()
    return seen[0]


def test_the_encoder_is_shown_lightness_alone() -> None:
    trained = method()
    grey = grey_of_lightness(lab_of(rgb())[:, 0]).unsqueeze(1).expand(-1, 3, -1, -1)
    assert float((grey - rgb()).abs().max()) > 0.2
    torch.testing.assert_close(shown(trained, rgb()), shown(trained, grey), rtol=0, atol=1e-3)
    channels = shown(trained, rgb())
    assert torch.equal(channels[:, 0], channels[:, 1])
    assert torch.equal(channels[:, 0], channels[:, 2])


def test_the_loss_is_that_of_the_colours_in_the_middle_of_each_stride() -> None:
    trained = method().eval()
    output = trained.step(views(rgb()), batch())
    ab = lab_of(rgb())[:, 1:, 2::4, 2::4]
    assert ab.shape[-2:] == (4, 4)
    bins, shares = trained.bins.soft(ab)
    logits = trained.decoder(spatial_map(trained.backbone, shown(trained, rgb())))
    trained.prior.counts_q.copy_(torch.bincount(bins[..., 0].flatten(), minlength=261))
    expected = rebalanced_cross_entropy(logits, bins, shares, trained.prior.weights())
    torch.testing.assert_close(output.loss, expected, rtol=1e-3, atol=1e-4)
    assert output.embeddings[0].shape == (N, trained.backbone.dim)


def test_colours_are_counted_as_they_pass_and_kept_with_the_state() -> None:
    trained = method()
    trained.step(views(rgb()), batch())
    trained.step(views(rgb(1)), batch())
    assert float(trained.prior.counts_q.sum()) == 2 * N * 4 * 4
    assert "prior.counts_q" in trained.state_dict()


@pytest.mark.parametrize("stride", [1, 2, 3, 8])
def test_any_stride_is_predicted(stride: int) -> None:
    trained = method(output_stride=stride)
    assert trained.decoder.side_out == len(range(stride // 2, SIZE, stride))
    assert bool(torch.isfinite(trained.step(views(rgb()), batch()).loss))


@pytest.mark.parametrize("backbone", [RESNET, VIT], ids=["resnet", "vit"])
def test_every_parameter_of_encoder_and_decoder_learns(backbone: BackboneConfig) -> None:
    trained = method(backbone)
    torch.autograd.backward(trained.step(views(rgb()), batch()).loss)
    assert all(p.grad is not None for p in trained.parameters())


def test_what_is_exported_makes_of_coloured_pictures_what_training_made_of_their_grey() -> None:
    trained = method().eval()
    grey = rgb()[:, :1].expand(-1, 3, -1, -1)
    with torch.no_grad():
        inner = spatial_map(trained.backbone, shown(trained, grey)).mean(dim=(2, 3))
        torch.testing.assert_close(trained.exported()(views(grey)[0]), inner, rtol=1e-3, atol=1e-4)
    assert trained.exported() is not trained.backbone


def test_it_learns_which_lightness_has_which_colour() -> None:
    trained = method()
    red, blue = torch.tensor([0.9, 0.3, 0.2]), torch.tensor([0.1, 0.1, 0.4])
    colours = torch.stack([red, blue] * (N // 2)).view(N, 3, 1, 1).expand(-1, -1, SIZE, SIZE)
    optimiser = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        output = trained.step(views(colours), batch())
        torch.autograd.backward(output.loss)
        optimiser.step()
    assert float(output.values["accuracy"]) > 0.9


def test_a_stride_that_leaves_no_map_is_refused() -> None:
    plan = RunPlan(steps=1, batch_size=N, dataset_size=32, size=SIZE)
    with pytest.raises(ConfigError, match=r"method\.output_stride: 9 leaves no map of a picture of 16 pixels"):
        Colorization.check(ColorizationOptions(output_stride=9), plan, build_backbone(RESNET, SIZE))
    Colorization.check(ColorizationOptions(output_stride=8), plan, build_backbone(VIT, SIZE))
