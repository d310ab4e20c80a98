from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone, train
from twinlens.training.errors import ConfigError, TrainingError
from twinlens.training.losses.sinkhorn import sinkhorn
from twinlens.training.losses.swapped_prediction import swapped_prediction
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.swav import SwAV, SwAVOptions
from twinlens.training.modules.backbone_config import BackboneConfig

N = 8


def options(**changed: Any) -> SwAVOptions:
    return SwAVOptions(**{"hidden": 32, "dim": 16, "prototypes": 12, **changed})


def plan(**changed: Any) -> RunPlan:
    given = {"steps": 10, "batch_size": N, "dataset_size": 32, "size": 16, "learning_rate": 0.02, "log_every": 1}
    return RunPlan(**{**given, "optimiser": "sgd", **changed})


def method(run: RunPlan | None = None, backbone: BackboneConfig = RESNET, **changed: Any) -> SwAV:
    return SwAV(small_backbone(backbone), options(**changed), run or plan())


def test_a_step_is_swapped_prediction_of_sinkhorns_codes_from_all_crops() -> None:
    trained, views = method(plan(local_views=3)), random_views(2, 3)
    output = trained.step(views, empty_batch())
    # One pass a size, then the head on all crops together, as the authors do.
    features = [trained.backbone(torch.cat(views[:2])), trained.backbone(torch.cat(views[2:]))]
    z = normalize(trained.head(torch.cat(features)), dim=1)
    scores = list((z @ trained.prototypes.weight.T).chunk(5))
    expected = swapped_prediction(scores, [sinkhorn(each) for each in scores[:2]], temperature=0.1)
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(output.embeddings, (z[:N], z[N : 2 * N]))
    assert set(output.values) == {"assignment_information", "prototypes_used"}


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_encoder_head_and_prototypes_learn(backbone: BackboneConfig) -> None:
    trained = method(backbone=backbone)
    torch.autograd.backward(trained.step(random_views(), empty_batch()).loss)
    assert [name for name, each in trained.named_parameters() if each.grad is None] == []


def test_prototypes_have_unit_length_whenever_they_are_used(tmp_path: Path) -> None:
    trained = method()
    with torch.no_grad():
        trained.prototypes.weight.mul_(3)
    trained.step(random_views(), empty_batch())
    torch.testing.assert_close(trained.prototypes.weight.norm(dim=1).detach(), torch.ones(12))


def test_prototypes_rest_in_the_first_epoch_and_move_in_the_second(tmp_path: Path) -> None:
    # Weight decay and momentum would move them without a gradient as well, were they not left out entirely.
    for steps, moved in ((4, False), (5, True)):
        trained = method(plan(steps=steps, weight_decay=0.1, learning_rate=0.1))
        before = {name: each.detach().clone() for name, each in trained.named_parameters()}
        train(trained, tmp_path / str(steps))
        after = dict(trained.named_parameters())
        rested = torch.allclose(after["prototypes.weight"], before["prototypes.weight"], atol=1e-6)
        assert rested is not moved
        assert not torch.equal(after["head.0.weight"], before["head.0.weight"])


def test_the_queue_fills_from_its_epoch_on_and_is_used_once_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned: list[int] = []

    def spy(scores: Tensor, **settings: Any) -> Tensor:
        assigned.append(len(scores))
        return sinkhorn(scores, **settings)

    monkeypatch.setattr("twinlens.training.methods.swav.sinkhorn", spy)
    trained = method(plan(steps=8), queue_size=2 * N, queue_start_epoch=1.0)
    train(trained, tmp_path)
    # Four steps an epoch; then two to fill two batches; two codes a step.
    assert assigned[::2] == [N] * 6 + [3 * N] * 2
    assert assigned[1::2] == assigned[::2]


def test_codes_are_those_of_batch_and_queue_together() -> None:
    trained = method(queue_size=2 * N, queue_start_epoch=0.0)
    for seed in range(2):
        trained.step(random_views(seed=seed), empty_batch())
    earlier = [trained.state_dict()[f"queues.{view}.keys_kd"].clone() for view in range(2)]
    assert not torch.equal(earlier[0], earlier[1])
    output = trained.step(random_views(seed=2), empty_batch())
    weight = trained.prototypes.weight
    scores = [z @ weight.T for z in output.embeddings]
    codes = [sinkhorn(torch.cat([s, e @ weight.T]))[:N] for s, e in zip(scores, earlier, strict=True)]
    torch.testing.assert_close(output.loss, swapped_prediction(scores, codes))


def test_the_queue_is_part_of_the_state() -> None:
    trained, other = (method(queue_size=2 * N, queue_start_epoch=0.0) for _ in range(2))
    trained.step(random_views(), empty_batch())
    other.load_state_dict(trained.state_dict())
    for mine, theirs in zip(trained.queues, other.queues, strict=True):
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())


def test_what_leaves_is_the_encoder() -> None:
    trained = method()
    assert trained.exported() is trained.backbone


def test_autocast_does_not_reach_the_assignment() -> None:
    trained = method()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = trained.step(random_views(), empty_batch())
    assert output.loss.dtype == torch.float32
    torch.testing.assert_close(output.embeddings[0].norm(dim=1), torch.ones(N))


def test_chunks_change_neither_loss_nor_gradients_of_a_network_without_batch_norm() -> None:
    gradients = []
    for chunk_size in (None, 5):
        trained = method(plan(local_views=2, chunk_size=chunk_size), VIT)
        torch.autograd.backward(trained.step(random_views(2, 2), empty_batch()).loss)
        gradients.append({name: each.grad for name, each in trained.named_parameters()})
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"prototypes": 9}, "method.prototypes: 9 prototypes cannot tell the 10 classes"),
        ({"queue_size": N}, "method.queue_size: .*not larger"),
        ({"queue_size": 2 * N + 1}, "method.queue_size: .*not a multiple"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_built(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SwAV.check(options(**changed), plan(classes=10), small_backbone())


def test_as_many_prototypes_as_classes_and_data_without_classes_are_allowed() -> None:
    SwAV.check(options(prototypes=10), plan(classes=10), small_backbone())
    SwAV.check(options(prototypes=2), plan(classes=0), small_backbone())


def test_without_sinkhorn_all_pictures_fall_on_one_prototype_and_the_run_is_stopped(tmp_path: Path) -> None:
    run = plan(steps=300, batch_size=32, dataset_size=128)
    with pytest.raises(
        TrainingError, match=r"have collapsed at step .*; a softmax .* set method.assignment to sinkhorn"
    ):
        train(method(run, assignment="softmax", freeze_prototypes_epochs=0.0, prototypes=32), tmp_path)


def test_with_sinkhorn_the_same_run_uses_all_prototypes(tmp_path: Path) -> None:
    run = plan(steps=50, batch_size=32, dataset_size=128, log_every=10)
    reports = train(method(run, freeze_prototypes_epochs=0.0, prototypes=32), tmp_path)
    assert reports[-1]["prototypes_used"] > 0.8
    assert reports[-1]["assignment_information"] > reports[0]["assignment_information"]
    assert reports[-1]["loss"] < reports[0]["loss"]
