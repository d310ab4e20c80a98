from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.small_runs import RESNET, SIZE, VIT, empty_batch, random_views, small_backbone
from twinlens.training.losses.nt_xent import nt_xent
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.simclr import SimCLR, SimCLROptions
from twinlens.training.modules.backbone_config import BackboneConfig

N = 8


def method(backbone: BackboneConfig = RESNET, *, chunk_size: int | None = None, **options: Any) -> SimCLR:
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=SIZE, chunk_size=chunk_size)
    return SimCLR(small_backbone(backbone), SimCLROptions(dim=8, **options), plan)


def gradients(trained: SimCLR) -> dict[str, Tensor]:
    trained.zero_grad()
    dtype = next(trained.parameters()).dtype
    torch.autograd.backward(trained.step([view.to(dtype) for view in random_views()], empty_batch()).loss)
    return {name: p.grad.clone() for name, p in trained.named_parameters() if p.grad is not None}


def test_a_step_is_nt_xent_of_the_projections_of_both_views_normalised_together() -> None:
    trained = method(temperature=0.3)
    output = trained.step(random_views(), empty_batch())
    features = trained.backbone(torch.cat(random_views()))
    z = trained.head(features)
    torch.testing.assert_close(output.loss, nt_xent(z[:N], z[N:], 0.3))
    torch.testing.assert_close(output.embeddings, (z[:N], z[N:]))


def test_every_parameter_of_encoder_and_head_learns() -> None:
    trained = method()
    assert set(gradients(trained)) == {name for name, _ in trained.named_parameters()}


@pytest.mark.parametrize("head", ["mlp", "linear", "none"])
def test_the_head_can_be_ablated_and_never_leaves_with_the_encoder(head: str) -> None:
    trained = method(head=head)
    linear = [layer for layer in trained.head.modules() if isinstance(layer, nn.Linear)]
    assert len(linear) == {"mlp": 2, "linear": 1, "none": 0}[head]
    width = trained.backbone.dim if head == "none" else 8
    assert trained.step(random_views(), empty_batch()).embeddings[0].shape == (N, width)
    assert trained.exported() is trained.backbone


def test_the_head_can_be_the_equation_of_the_paper_without_batch_norm() -> None:
    trained = method(head_norm="none", hidden=12)
    layers = list(trained.head.children())
    assert [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear]
    assert layers[0].out_features == 12


def test_chunks_change_neither_loss_nor_gradients() -> None:
    chunked, whole = method(VIT, chunk_size=4).double(), method(VIT).double()
    torch.testing.assert_close(gradients(chunked), gradients(whole))


def test_in_chunks_the_head_still_normalises_over_the_whole_empty_batch() -> None:
    chunked, whole = method(VIT, chunk_size=4), method(VIT)
    gradients(chunked)
    gradients(whole)
    torch.testing.assert_close(dict(chunked.head.named_buffers()), dict(whole.head.named_buffers()))


def test_accuracy_is_the_share_of_views_that_find_the_other_view_first() -> None:
    class Given(SimCLR):
        def forward_given(self, first: Tensor, second: Tensor) -> Tensor:
            self.backbone = nn.Identity()  # type: ignore[assignment]
            self.head = nn.Identity()
            return self.step([first, second], empty_batch(len(first))).values["accuracy"]

    plan = RunPlan(steps=1, batch_size=4, dataset_size=4, size=SIZE)
    trained = Given(small_backbone(), SimCLROptions(), plan)
    eye = torch.eye(4)
    assert trained.forward_given(eye, 3 * eye) == 1
    # The last two pictures' second views are exchanged: their four views find the wrong picture.
    assert trained.forward_given(eye, eye[[0, 1, 3, 2]]) == 0.5


def test_a_few_steps_teach_it_to_tell_pictures_apart() -> None:
    trained = method(temperature=0.2)
    generator = torch.Generator().manual_seed(1)
    colours = torch.randn(N, 3, 1, 1, generator=generator).expand(-1, -1, SIZE, SIZE)
    optimiser = torch.optim.AdamW(trained.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        noisy = [colours + 0.3 * torch.randn(colours.shape, generator=generator) for _ in range(2)]
        output = trained.step(noisy, empty_batch())
        optimiser.zero_grad()
        torch.autograd.backward(output.loss)
        optimiser.step()
        losses.append(output.loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert output.values["accuracy"] > 0.8


@pytest.mark.parametrize("options", [{"temperature": 0}, {"head": "deep"}, {"dim": 1}, {"queue": 5}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SimCLROptions.model_validate(options)
