from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.layers.drop import DropPath
from torch import Tensor, nn

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone, train
from twinlens.training.errors import TrainingError
from twinlens.training.losses.dino import dino_loss
from twinlens.training.methods.dino import DINO, DINOOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone_config import BackboneConfig

N = 8


def options(**changed: Any) -> DINOOptions:
    return DINOOptions(**{"outputs": 24, "hidden": 32, "bottleneck": 16, **changed})


def plan(**changed: Any) -> RunPlan:
    given = {"steps": 10, "batch_size": N, "dataset_size": 32, "size": 16, "learning_rate": 0.01, "log_every": 1}
    return RunPlan(**{**given, **changed})


def method(run: RunPlan | None = None, backbone: BackboneConfig = RESNET, **changed: Any) -> DINO:
    return DINO(small_backbone(backbone), options(**changed), run or plan())


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_a_step_compares_the_student_on_all_crops_with_the_teacher_on_the_full_ones(backbone: BackboneConfig) -> None:
    trained, views = method(plan(local_views=3), backbone), random_views(2, 3)
    trained.centre.value.copy_(torch.linspace(-0.3, 0.3, 24))
    centre = trained.centre.value.clone()
    output = trained.step(views, empty_batch())

    student = [trained.backbone(torch.cat(views[:2])), trained.backbone(torch.cat(views[2:]))]
    scores = trained.head(torch.cat(student)).split(N)
    teacher = trained.teacher_head.network(trained.teacher.network(torch.cat(views[:2])))
    expected = dino_loss(
        scores, teacher.split(N), centre, student_temperature=0.1, teacher_temperature=trained.teacher_temperature()
    )
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(trained.centre.value, 0.9 * centre + 0.1 * teacher.mean(dim=0))


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_the_student_learns_and_the_teacher_gets_no_gradient(backbone: BackboneConfig) -> None:
    trained = method(plan(local_views=2), backbone)
    torch.autograd.backward(trained.step(random_views(2, 2), empty_batch()).loss)
    without = {name for name, each in trained.named_parameters() if each.grad is None}
    teacher = {name for name, _ in trained.named_parameters() if name.startswith(("teacher.", "teacher_head."))}
    assert without == teacher | {"head.gain"}


def test_the_teacher_follows_by_a_momentum_that_rises_to_one(tmp_path: Path) -> None:
    trained = method(plan(steps=1), momentum=0.9)
    before = [each.detach().clone() for each in trained.teacher.parameters()]
    train(trained, tmp_path / "one")
    for mine, start, student in zip(trained.teacher.parameters(), before, trained.backbone.parameters(), strict=True):
        torch.testing.assert_close(mine, 0.9 * start + 0.1 * student)

    momenta: list[float] = []
    longer = method(plan(steps=4), momentum=0.9)
    longer.teacher.follow = lambda _, momentum: momenta.append(momentum)  # type: ignore[method-assign,assignment]
    train(longer, tmp_path / "four")
    # 1 - 0.1 (cos(π k / 4) + 1) / 2 at k = 0, 1, 2, 3.
    root = math.sqrt(0.5)
    assert momenta == pytest.approx([0.9, 1 - 0.05 * (1 + root), 0.95, 1 - 0.05 * (1 - root)])


def test_the_teacher_is_what_leaves_and_starts_as_the_student() -> None:
    trained = method()
    assert trained.exported() is trained.teacher.network
    for mine, student in zip(trained.exported().parameters(), trained.backbone.parameters(), strict=True):
        torch.testing.assert_close(mine, student)
        assert not mine.requires_grad


def test_the_teachers_temperature_warms_up_over_its_epochs(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"warmup_teacher_temperature_epochs": 2, "teacher_temperature": 0.08}
    trained = method(plan(steps=10), **changed)
    assert trained.teacher_temperature() == pytest.approx(0.04)
    seen: list[float] = []
    trained.after_step = lambda: seen.append(trained.teacher_temperature())  # type: ignore[method-assign]
    train(trained, tmp_path)
    # Four steps an epoch.
    assert seen == pytest.approx([0.04 + 0.04 * min(1, step / 8) for step in range(10)])
    assert method(warmup_teacher_temperature_epochs=0.0).teacher_temperature() == pytest.approx(0.07)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd", "lars"])
def test_the_last_layer_rests_in_the_first_epoch_and_moves_in_the_second(tmp_path: Path, optimiser: str) -> None:
    for steps, moved in ((4, False), (5, True)):
        trained = method(plan(steps=steps, optimiser=optimiser, weight_decay=0.1), train_last_gain=True)
        before = [trained.head.last.detach().clone(), trained.head.gain.detach().clone()]
        train(trained, tmp_path / str(steps))
        after = [trained.head.last, trained.head.gain]
        assert [torch.equal(a, b) for a, b in zip(after, before, strict=True)] == [not moved] * 2


def test_each_parameters_gradient_is_clipped_on_its_own() -> None:
    trained = method(clip_gradient=0.5)
    parameters = dict(trained.named_parameters())
    large, small = parameters["head.perceptron.0.weight"], parameters["head.perceptron.0.bias"]
    large.grad, small.grad = torch.full_like(large, 2.0), torch.full_like(small, 1e-3)
    trained.on_before_optimizer_step(torch.optim.SGD(trained.parameters()))
    assert float(large.grad.norm()) == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(small.grad, torch.full_like(small, 1e-3))


def test_weight_decay_rises_for_matrices_only() -> None:
    trained = method(plan(weight_decay=0.04), weight_decay_end=0.4)
    optimiser = trained.configure_optimizers()["optimizer"]
    for done, expected in ((0.0, 0.04), (0.5, 0.22), (1.0, 0.4)):
        type(trained).progress = property(lambda _, done=done: done)  # type: ignore[method-assign,assignment,misc]
        try:
            trained.on_before_optimizer_step(optimiser)
        finally:
            del type(trained).progress
        assert [group["weight_decay"] for group in optimiser.param_groups] == pytest.approx([expected, 0.0])


def test_stochastic_depth_is_the_students_only() -> None:
    deep = VIT.model_copy(update={"arguments": {**VIT.arguments, "depth": 2, "drop_path_rate": 0.5}})
    trained = method(backbone=deep)

    def rates(network: nn.Module) -> list[float]:
        return [each.drop_prob for each in network.modules() if isinstance(each, DropPath)]

    assert max(rates(trained.backbone)) == pytest.approx(0.5)
    assert set(rates(trained.teacher)) == {0.0}


@pytest.mark.parametrize(("backbone", "normed"), [(RESNET, True), (VIT, False)])
def test_the_head_of_a_vit_is_free_of_batch_norm(backbone: BackboneConfig, normed: bool) -> None:
    layers = list(method(backbone=backbone).head.modules())
    assert any(isinstance(each, nn.BatchNorm1d) for each in layers) is normed


def test_the_centre_is_part_of_the_state() -> None:
    trained, other = method(), method()
    trained.step(random_views(), empty_batch())
    other.load_state_dict(trained.state_dict())
    assert trained.centre.value.any()
    torch.testing.assert_close(other.centre.value, trained.centre.value)


def test_autocast_does_not_reach_the_loss() -> None:
    trained = method()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = trained.step(random_views(), empty_batch())
    assert output.loss.dtype == output.embeddings[0].dtype == torch.float32


def test_teacher_and_student_are_compared_in_single_precision_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Tensor] = []

    def spy(student: Sequence[Tensor], teacher: Sequence[Tensor], centre: Tensor, **temperatures: float) -> Tensor:
        compared.extend((*student, *teacher))
        return dino_loss(student, teacher, centre, **temperatures)

    monkeypatch.setattr("twinlens.training.methods.dino.dino_loss", spy)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        method(backbone=VIT).step(random_views(), empty_batch())
    assert len(compared) == 4
    for scores in compared:
        assert not torch.equal(scores, scores.bfloat16().float())


def test_a_vit_trains_on_crops_of_two_sizes(tmp_path: Path) -> None:
    reports = train(method(plan(local_views=2, learning_rate=1e-3), VIT), tmp_path, local=2)
    assert all(math.isfinite(value) for report in reports for value in report.values())


@pytest.mark.parametrize(
    ("broken", "words"),
    [({"centre": False}, "set method.centre to true"), ({"teacher_temperature": 1.0}, "teacher_temperature may be")],
)
def test_without_centring_or_sharpening_the_run_collapses_and_is_stopped(
    tmp_path: Path, broken: dict[str, Any], words: str
) -> None:
    run = plan(steps=120, batch_size=32, dataset_size=128, learning_rate=1e-3, log_every=2)
    changed = {"freeze_last_layer_epochs": 0.0, "momentum": 0.9, "warmup_teacher_temperature_epochs": 0.0}
    with pytest.raises(TrainingError, match=f"have collapsed at step .*{words}"):
        train(method(run, VIT, **{**changed, **broken}), tmp_path)
