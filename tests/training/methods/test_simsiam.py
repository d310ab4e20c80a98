from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone
from twinlens.training.losses.negative_cosine import negative_cosine
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.simsiam import SimSiam, SimSiamOptions
from twinlens.training.modules.backbone_config import BackboneConfig

N = 8


def method(backbone: BackboneConfig = RESNET, *, plan: dict[str, Any] | None = None, **options: Any) -> SimSiam:
    given = {"steps": 10, "batch_size": N, "dataset_size": 32, "size": 16, "learning_rate": 0.05}
    run = RunPlan(**{**given, "optimiser": "sgd", **(plan or {})})
    chosen = SimSiamOptions(**{"hidden": 24, "dim": 12, "predictor_hidden": 6, **options})
    return SimSiam(small_backbone(backbone), chosen, run)


def branches(trained: SimSiam) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p_1, p_2, z_1, z_2."""
    z_1, z_2 = (trained.projection_head(trained.backbone(view)) for view in random_views())
    return trained.prediction_head(z_1), trained.prediction_head(z_2), z_1, z_2


def test_a_step_is_the_symmetrised_negative_cosine_with_constant_projections() -> None:
    trained = method()
    output = trained.step(random_views(), empty_batch())
    p_1, p_2, z_1, z_2 = branches(trained)
    expected = negative_cosine(p_1, z_2.detach()) / 2 + negative_cosine(p_2, z_1.detach()) / 2
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(output.embeddings, (z_1, z_2))
    weights = list(trained.parameters())
    torch.testing.assert_close(torch.autograd.grad(output.loss, weights), torch.autograd.grad(expected, weights))


def test_without_stop_gradient_the_value_stays_and_the_gradients_change() -> None:
    stopped, flowing = method(), method(stop_gradient=False)
    losses = [trained.step(random_views(), empty_batch()).loss for trained in (stopped, flowing)]
    torch.testing.assert_close(*losses)
    found = [
        torch.autograd.grad(loss, list(each.backbone.parameters()))
        for loss, each in zip(losses, (stopped, flowing), strict=True)
    ]
    assert not all(torch.allclose(a, b) for a, b in zip(*found, strict=True))


def test_the_heads_are_those_of_the_paper() -> None:
    defaults = SimSiamOptions()
    assert (defaults.layers, defaults.hidden, defaults.dim, defaults.predictor_hidden) == (3, 2048, 2048, 512)
    trained = method()
    block = [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    assert [type(layer) for layer in trained.projection_head] == [*block, *block, nn.Linear, nn.BatchNorm1d]
    assert [type(layer) for layer in trained.prediction_head.children()] == [*block, nn.Linear]
    assert len(method(layers=2).projection_head) == 5


def test_projections_have_mean_0_and_variance_1_in_each_dimension() -> None:
    z, _ = method().step(random_views(), empty_batch()).embeddings
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(12), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.var(dim=0, correction=0), torch.ones(12), atol=1e-2, rtol=0)


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_every_parameter_learns(backbone: BackboneConfig) -> None:
    trained = method(backbone)
    torch.autograd.backward(trained.step(random_views(), empty_batch()).loss)
    assert [name for name, p in trained.named_parameters() if p.grad is None] == []
    assert trained.exported() is trained.backbone


def rates(trained: SimSiam) -> tuple[set[float], set[float]]:
    """The learning rates of encoder and predictor half way through the run."""
    configured = trained.configure_optimizers()
    optimiser, scheduler = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    for _ in range(5):
        optimiser.step()
        scheduler.step()
    predictor = {id(p) for p in trained.prediction_head.parameters()}
    found: tuple[set[float], set[float]] = (set(), set())
    seen: list[int] = []
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            seen.append(id(parameter))
            found[id(parameter) in predictor].add(round(group["lr"], 6))
    assert sorted(seen) == sorted(id(p) for p in trained.parameters())
    return found


def test_the_predictor_keeps_its_learning_rate_while_the_encoders_falls() -> None:
    assert rates(method()) == ({0.025}, {0.05})
    assert rates(method(predictor_decays=True)) == ({0.025}, {0.025})
    assert rates(method(plan={"optimiser": "adamw"})) == ({0.025}, {0.05})


def test_it_can_go_without_a_predictor() -> None:
    trained = method(predictor="none")
    output = trained.step(random_views(), empty_batch())
    torch.testing.assert_close(output.loss, negative_cosine(*output.embeddings))
    assert rates(trained) == ({0.025}, set())


def test_chunks_change_neither_loss_nor_gradients_where_there_is_no_batch_norm_in_the_encoder() -> None:
    whole, chunked = method(VIT).double(), method(VIT, plan={"chunk_size": 3}).double()
    views = [view.double() for view in random_views()]
    losses = [trained.step(views, empty_batch()).loss for trained in (whole, chunked)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        torch.autograd.backward(loss)
    for a, b in zip(whole.parameters(), chunked.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
