from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone, train
from twinlens.training.losses.byol import byol_regression
from twinlens.training.methods.byol import BYOL, BYOLOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.momentum import cosine_momentum

N = 8


def method(backbone: BackboneConfig = RESNET, *, plan: dict[str, Any] | None = None, **options: Any) -> BYOL:
    given = {"steps": 4, "batch_size": N, "dataset_size": 32, "size": 16, "learning_rate": 0.05, "log_every": 1}
    run = RunPlan(**{**given, "optimiser": "sgd", **(plan or {})})
    return BYOL(small_backbone(backbone), BYOLOptions(**{"hidden": 24, "dim": 12, **options}), run)


def gradients(trained: BYOL, views: list[Tensor] | None = None) -> dict[str, Tensor]:
    torch.autograd.backward(trained.step(views or random_views(), empty_batch()).loss)
    return {name: p.grad for name, p in trained.named_parameters() if p.grad is not None}


def test_a_step_predicts_the_target_of_each_view_from_the_other() -> None:
    trained, (a, b) = method(), random_views()
    with torch.no_grad():
        for parameter in trained.target_head.parameters():
            parameter.mul_(1.5)  # so that the two branches differ
    output = trained.step([a, b], empty_batch())
    z_a, z_b = (trained.projection_head(trained.backbone(view)) for view in (a, b))
    t_a, t_b = (trained.target_head(trained.target_backbone(view)) for view in (a, b))
    p_a, p_b = trained.prediction_head(z_a), trained.prediction_head(z_b)
    torch.testing.assert_close(output.loss, byol_regression(p_a, t_b) + byol_regression(p_b, t_a))
    torch.testing.assert_close(output.embeddings, (z_a, z_b))


def test_the_loss_does_not_change_when_the_views_are_exchanged() -> None:
    a, b = random_views()
    torch.testing.assert_close(
        method().step([a, b], empty_batch()).loss, method().step([b, a], empty_batch()).loss, rtol=1e-5, atol=1e-5
    )


def test_the_heads_are_those_of_the_paper_and_the_predictor_is_on_the_online_branch_only() -> None:
    defaults = BYOLOptions()
    assert (defaults.hidden, defaults.dim, defaults.momentum) == (4096, 256, 0.996)
    trained = method()
    for head in (trained.projection_head, trained.prediction_head):
        assert [type(layer) for layer in head.children()] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    targets = {name.split(".")[0] for name in trained.state_dict() if name.startswith("target")}
    assert targets == {"target_backbone", "target_head"}


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_the_online_branch_learns_and_the_target_never_receives_gradients(backbone: BackboneConfig) -> None:
    trained = method(backbone)
    online = {name for name, _ in trained.named_parameters() if not name.startswith("target")}
    assert set(gradients(trained)) == online
    moved = {id(p) for group in trained.configure_optimizers()["optimizer"].param_groups for p in group["params"]}
    assert moved == {id(p) for name, p in trained.named_parameters() if name in online}


def test_gradients_do_not_flow_through_the_targets() -> None:
    trained, (a, b) = method(), random_views()
    t_a, t_b = (trained.target_head(trained.target_backbone(view)).clone() for view in (a, b))
    constant = byol_regression(trained.prediction_head(trained.projection_head(trained.backbone(a))), t_b)
    constant = constant + byol_regression(trained.prediction_head(trained.projection_head(trained.backbone(b))), t_a)
    weights = list(trained.backbone.parameters())
    expected = torch.autograd.grad(constant, weights)
    found = torch.autograd.grad(trained.step([a, b], empty_batch()).loss, weights)
    torch.testing.assert_close(found, expected)


def test_after_each_step_the_target_follows_by_the_cosine_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = method(momentum=0.9)
    momenta: list[float] = []
    follow = trained.target_head.follow

    def spy(online: nn.Module, momentum: float) -> None:
        momenta.append(momentum)
        before = trained.target_head.network.state_dict()["1.running_mean"].clone()
        follow(online, momentum)
        after = trained.target_head.network.state_dict()["1.running_mean"]
        expected = momentum * before + (1 - momentum) * online.state_dict()["1.running_mean"]
        torch.testing.assert_close(after, expected)

    monkeypatch.setattr(trained.target_head, "follow", spy)
    reports = train(trained, tmp_path)
    expected = [cosine_momentum(0.9, step / 4) for step in range(4)]
    assert momenta == pytest.approx(expected)
    assert [report["momentum"] for report in reports] == pytest.approx(expected)


def test_the_online_encoder_is_exported() -> None:
    trained = method()
    assert trained.exported() is trained.backbone
    assert all(parameter.requires_grad for parameter in trained.exported().parameters())


def test_chunks_change_neither_loss_nor_gradients_where_there_is_no_batch_norm_in_the_encoder() -> None:
    whole, chunked = method(VIT).double(), method(VIT, plan={"chunk_size": 3}).double()
    views = [view.double() for view in random_views()]
    losses = [trained.step(views, empty_batch()).loss for trained in (whole, chunked)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(gradients(chunked, views), gradients(whole, views))


def test_without_stop_gradient_the_projections_are_each_others_targets() -> None:
    trained, (a, b) = method(stop_gradient=False), random_views()
    z_a, z_b = (trained.projection_head(trained.backbone(view)) for view in (a, b))
    expected = byol_regression(trained.prediction_head(z_a), z_b) + byol_regression(trained.prediction_head(z_b), z_a)
    loss = trained.step([a, b], empty_batch()).loss
    torch.testing.assert_close(loss, expected)
    weights = list(trained.backbone.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, weights), torch.autograd.grad(expected, weights))


def test_a_run_resumed_from_its_state_has_the_same_targets(tmp_path: Path) -> None:
    trained = method()
    train(trained, tmp_path)
    resumed = method()
    resumed.load_state_dict(trained.state_dict())
    for view in random_views():
        torch.testing.assert_close(
            resumed.eval().target_head(resumed.target_backbone(view)),
            trained.eval().target_head(trained.target_backbone(view)),
        )
