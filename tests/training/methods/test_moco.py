from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone, train
from twinlens.training.errors import ConfigError
from twinlens.training.losses.batch_info_nce import batch_info_nce
from twinlens.training.losses.queue_info_nce import queue_info_nce
from twinlens.training.methods.moco import MoCo, MoCoOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.momentum import cosine_momentum
from twinlens.training.modules.split_batch_norm import SplitBatchNorm

N, K = 8, 24


def plan(**changed: Any) -> RunPlan:
    given = {"steps": 4, "batch_size": N, "dataset_size": 64, "size": 16, "learning_rate": 0.05, "log_every": 1}
    return RunPlan(**{**given, "optimiser": "sgd", **changed})


def method(backbone: BackboneConfig = RESNET, *, run: RunPlan | None = None, **options: Any) -> MoCo:
    given = {"hidden": 24, "dim": 12, "queue_size": K, "batch_norm_parts": 2}
    return MoCo(small_backbone(backbone), MoCoOptions(**{**given, **options}), run or plan())


def keys(trained: MoCo, view: Tensor) -> Tensor:
    found: Tensor = trained.key_head(trained.key_backbone(view))
    return found


def queue(trained: MoCo) -> Tensor:
    assert trained.queue is not None
    return trained.queue.keys_kd


def test_a_step_of_version_2_finds_the_key_of_the_other_view_among_the_queue() -> None:
    trained, (a, b) = method(shuffle_keys=False), random_views()
    output = trained.step([a, b], empty_batch())
    q, k = trained.projection_head(trained.backbone(a)), keys(trained, b)
    torch.testing.assert_close(output.loss, queue_info_nce(q, k, queue(trained), 0.2))
    torch.testing.assert_close(output.embeddings, (q, k))


def test_both_views_can_be_queries() -> None:
    trained, (a, b) = method(shuffle_keys=False, symmetric=True), random_views()
    one = queue_info_nce(trained.projection_head(trained.backbone(a)), keys(trained, b), queue(trained), 0.2)
    other = queue_info_nce(trained.projection_head(trained.backbone(b)), keys(trained, a), queue(trained), 0.2)
    torch.testing.assert_close(trained.step([a, b], empty_batch()).loss, (one + other) / 2)


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_a_step_of_version_3_is_symmetric_and_has_the_batch_as_negatives(backbone: BackboneConfig) -> None:
    trained, (a, b) = method(backbone, version=3, temperature=0.3), random_views()
    output = trained.step([a, b], empty_batch())
    q_a, q_b = (trained.prediction_head(trained.projection_head(trained.backbone(view))) for view in (a, b))
    k_a, k_b = (keys(trained, view) for view in (a, b))
    torch.testing.assert_close(output.loss, batch_info_nce(q_a, k_b, 0.3) + batch_info_nce(q_b, k_a, 0.3))
    assert trained.queue is None


@pytest.mark.parametrize("backbone", [RESNET, VIT])
@pytest.mark.parametrize("version", [2, 3])
def test_the_query_encoder_learns_and_the_key_encoder_never_receives_gradients(
    backbone: BackboneConfig, version: int
) -> None:
    trained = method(backbone, version=version)
    torch.autograd.backward(trained.step(random_views(), empty_batch()).loss)
    named = dict(trained.named_parameters())
    learning = {name for name, p in named.items() if not name.startswith("key_") and "patch_embed" not in name}
    if version == 2:
        learning |= {name for name in named if name.startswith("backbone.trunk.patch_embed")}
    assert {name for name, p in named.items() if p.grad is not None} == learning
    moved = {id(p) for group in trained.configure_optimizers()["optimizer"].param_groups for p in group["params"]}
    assert moved == {id(named[name]) for name in learning}


def test_after_the_step_the_key_encoder_follows_and_the_keys_enter_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = method(run=plan(steps=5), momentum=0.9)
    seen: list[Tensor] = []
    monkeypatch.setattr("twinlens.training.methods.moco.queue_info_nce", _spy(seen))
    start = {name: value.clone() for name, value in trained.key_head.network.state_dict().items()}
    reports = train(trained, tmp_path)
    assert [report["momentum"] for report in reports] == pytest.approx([0.9] * 5)
    # K = 3 N, so that after five steps the queue holds the keys of the last three.
    held = {tuple(row) for row in queue(trained).tolist()}
    assert held == {tuple(row) for row in normalize(torch.cat(seen[2:]), dim=1).tolist()}
    assert any(not torch.equal(value, start[name]) for name, value in trained.key_head.network.state_dict().items())


def _spy(seen: list[Tensor]) -> Any:
    def loss(q: Tensor, k: Tensor, queue_kd: Tensor, temperature: float) -> Tensor:
        assert {tuple(row) for row in normalize(k, dim=1).tolist()}.isdisjoint(
            {tuple(row) for row in queue_kd.tolist()}
        )
        seen.append(k)
        return queue_info_nce(q, k, queue_kd, temperature)

    return loss


def test_the_key_encoder_is_the_published_average_batch_norm_included(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = method(momentum=0.75)
    with torch.no_grad():
        for value in trained.backbone.state_dict().values():
            value.add_(1)
    before = {name: value.clone() for name, value in trained.key_backbone.network.state_dict().items()}
    trained.after_step()
    online = trained.backbone.state_dict()
    names = [name for name, value in before.items() if value.is_floating_point()]
    assert any(name.endswith("running_var") for name in names)
    for name in names:
        expected = 0.75 * before[name] + 0.25 * online[name]
        torch.testing.assert_close(trained.key_backbone.network.state_dict()[name], expected)


def test_version_3_raises_its_momentum_to_1_by_a_cosine(tmp_path: Path) -> None:
    reports = train(method(version=3), tmp_path)
    expected = [cosine_momentum(0.99, step / 4) for step in range(4)]
    assert [report["momentum"] for report in reports] == pytest.approx(expected)


def test_a_resumed_run_has_the_same_keys_and_queue(tmp_path: Path) -> None:
    trained = method()
    train(trained, tmp_path)
    resumed = method()
    resumed.load_state_dict(trained.state_dict())
    a, b = random_views(seed=5)
    torch.manual_seed(0)
    expected = trained.step([a, b], empty_batch()).loss
    torch.manual_seed(0)
    torch.testing.assert_close(resumed.step([a, b], empty_batch()).loss, expected, rtol=0, atol=0)


def layers(head: nn.Module) -> list[type[nn.Module]]:
    return [type(layer) for layer in head.children()]


def test_heads_temperature_and_momentum_are_those_of_the_version() -> None:
    block = [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    two = MoCo(small_backbone(), MoCoOptions(queue_size=K, batch_norm_parts=2), plan())
    assert layers(two.projection_head) == [nn.Linear, nn.ReLU, nn.Linear]
    assert queue(two).shape == (K, 128)
    assert (two.temperature, two.first_momentum) == (0.2, 0.999)
    resnet = method(version=3)
    assert layers(resnet.projection_head) == [*block, nn.Linear, nn.BatchNorm1d]
    assert layers(resnet.prediction_head) == [*block, nn.Linear]
    assert (resnet.temperature, resnet.first_momentum) == (1.0, 0.99)
    vit = method(VIT, version=3)
    assert layers(vit.projection_head) == [*block, *block, nn.Linear, nn.BatchNorm1d]
    assert layers(vit.prediction_head) == [*block, nn.Linear, nn.BatchNorm1d]
    assert vit.temperature == 0.2


def test_version_3_leaves_the_patch_embedding_of_a_vit_at_its_start(tmp_path: Path) -> None:
    for frozen in (True, False):
        trained = method(VIT, version=3, freeze_patch_embedding=frozen)
        before = trained.backbone.trunk.patch_embed.proj.weight.detach().clone()
        train(trained, tmp_path / str(frozen))
        assert torch.equal(trained.backbone.trunk.patch_embed.proj.weight, before) is frozen


def test_the_query_encoder_is_exported_and_its_weights_fit_the_plain_backbone() -> None:
    trained = method()
    assert trained.exported() is trained.backbone
    assert any(isinstance(layer, SplitBatchNorm) for layer in trained.backbone.modules())
    plain = small_backbone()
    plain.load_state_dict(trained.backbone.state_dict())
    (view,) = random_views(1)
    torch.testing.assert_close(plain.eval()(view), trained.backbone.eval()(view))


@pytest.mark.parametrize(("backbone", "chunk_size"), [(VIT, 3), (RESNET, 4)])
def test_chunks_change_neither_loss_nor_gradients(backbone: BackboneConfig, chunk_size: int) -> None:
    """Not with batch norm either: its parts are the same."""
    views = [view.double() for view in random_views()]
    both = [
        method(backbone, run=plan(chunk_size=chunk), batch_norm_parts=4, shuffle_keys=False).double()
        for chunk in (None, chunk_size)
    ]
    losses = [trained.step(views, empty_batch()).loss for trained in both]
    torch.testing.assert_close(*losses)
    for loss in losses:
        torch.autograd.backward(loss)
    for a, b in zip(both[0].parameters(), both[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize(
    ("backbone", "options", "shuffled"),
    [
        (RESNET, {}, True),
        (RESNET, {"shuffle_keys": False}, False),
        (RESNET, {"batch_norm_parts": 1}, False),
        (RESNET, {"version": 3}, False),
        (VIT, {}, False),
    ],
)
def test_keys_are_dealt_out_anew_where_batch_norm_works_on_parts(
    monkeypatch: pytest.MonkeyPatch, backbone: BackboneConfig, options: dict[str, Any], shuffled: bool
) -> None:
    calls: list[Tensor] = []

    def dealt(network: Callable[[Tensor], Tensor], view: Tensor) -> Tensor:
        calls.append(view)
        return network(view)

    monkeypatch.setattr("twinlens.training.methods.moco.computed_shuffled", dealt)
    method(backbone, **options).step(random_views(), empty_batch())
    assert bool(calls) == shuffled


def test_the_queue_is_the_papers_but_no_more_than_half_the_pictures() -> None:
    def size(dataset_size: int, **options: Any) -> int:
        run = plan(dataset_size=dataset_size, batch_size=256)
        chosen = MoCoOptions(dim=2, **options)
        MoCo.check(chosen, run, small_backbone())
        return len(queue(MoCo(small_backbone(), chosen, run)))

    assert size(1_281_167) == 65536
    assert size(10_000) == 4864
    assert size(10_000, symmetric=True) == 4608
    assert size(300) == 512  # never less than two batches
    assert size(300, queue_size=1024) == 1024


@pytest.mark.parametrize(
    ("options", "changed", "message"),
    [
        ({"queue_size": 8}, {}, "method.queue_size: a queue of 8 keys is not larger than the 8"),
        ({"queue_size": 20}, {}, "method.queue_size: a queue of 20 keys is not a multiple of the 8"),
        ({"queue_size": 24, "symmetric": True}, {}, "not a multiple of the 16"),
        ({"batch_norm_parts": 3}, {}, "method.batch_norm_parts: a batch of 8 cannot be cut into 3 equal parts"),
        ({"batch_norm_parts": 8}, {}, "8 equal parts of two pictures or more; take a batch that is a multiple of 16"),
        ({"batch_norm_parts": 2}, {"chunk_size": 2}, "8 in chunks of 2 .* into 2 equal parts .*, each within a chunk"),
        ({"batch_norm_parts": 2}, {"chunk_size": 3}, "a batch of 8 in chunks of 3 cannot be cut into 2 equal"),
        ({"queue_size": 21}, {"batch_size": 7}, "a batch of 7 cannot be cut into 8 equal"),
        ({"batch_norm_parts": 3}, {"world_size": 2}, "a batch of 8 and 2 processes cannot be cut into 3 equal"),
        ({}, {"world_size": 16}, "a batch of 8 and 16 processes cannot be cut into 16 equal"),
    ],
)
def test_a_queue_or_parts_that_do_not_suit_the_batch_are_refused(
    options: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    chosen = MoCoOptions(**{"queue_size": K, **options})
    with pytest.raises(ConfigError, match=message) as caught:
        MoCo.check(chosen, plan(**changed), small_backbone())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("batch_size", "changed", "parts"),
    [
        (256, {}, 8),
        (100, {}, 5),
        (8, {}, 4),
        (12, {}, 6),
        (256, {"world_size": 2}, 4),
        (256, {"world_size": 16}, 1),
        (256, {"chunk_size": 64}, 2),  # of 8
        (256, {"chunk_size": 16}, 1),  # of 16
        (256, {"world_size": 2, "chunk_size": 64}, 2),  # of 8
    ],
)
def test_batch_norm_works_on_8_parts_or_the_next_number_that_fits(
    batch_size: int, changed: dict[str, Any], parts: int
) -> None:
    run = plan(batch_size=batch_size, **changed)
    chosen = MoCoOptions(dim=2)
    MoCo.check(chosen, run, small_backbone())
    trained = MoCo(small_backbone(), chosen, run)
    found = {layer.parts for layer in trained.modules() if isinstance(layer, SplitBatchNorm)}
    assert found == {parts}  # of what a rank encodes at a time


def test_what_does_not_matter_is_not_refused() -> None:
    MoCo.check(MoCoOptions(version=3, queue_size=8, batch_norm_parts=3), plan(), small_backbone())
    MoCo.check(MoCoOptions(queue_size=K, batch_norm_parts=3), plan(), small_backbone(VIT))
    MoCo.check(MoCoOptions(queue_size=K, batch_norm_parts=1), plan(), small_backbone())


@pytest.mark.parametrize(
    ("options", "backbone", "cause"),
    [
        ({"batch_norm_parts": 1}, RESNET, "batch norm may give the answer away"),
        ({"shuffle_keys": False}, RESNET, "batch norm may give the answer away"),
        ({"batch_norm_parts": 1}, VIT, "the learning rate may be too high"),
        ({}, RESNET, "the learning rate may be too high"),
    ],
)
def test_the_likely_cause_of_a_collapse_is_named(options: dict[str, Any], backbone: BackboneConfig, cause: str) -> None:
    assert cause in method(backbone, **options).collapse_causes()
