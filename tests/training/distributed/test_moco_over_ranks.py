from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.ranks import on_ranks
from tests.support.small_runs import RESNET, VIT, Stepping, random_views, small_backbone
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.methods.moco import MoCo, MoCoOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.gather import own_rows, world_size
from twinlens.training.modules.global_batch_norm import share_batch_norm
from twinlens.training.modules.memory_queue import MemoryQueue
from twinlens.training.modules.shuffled_batch import computed_shuffled
from twinlens.training.modules.split_batch_norm import SplitBatchNorm

N, RANKS = 8, 2
SHARE = N // RANKS


def step_of(version: int, backbone: str) -> Stepping:
    plan = RunPlan(steps=4, batch_size=N, dataset_size=64, size=16, world_size=world_size())
    # Keys in their order: how they are dealt out is drawn at random, and not alike on one rank and on two.
    options = MoCoOptions.model_validate(
        {"version": version, "hidden": 12, "dim": 6, "queue_size": 24, "batch_norm_parts": 2, "shuffle_keys": False}
    )
    step = Stepping(MoCo(small_backbone(RESNET if backbone == "resnet" else VIT), options, plan)).double()
    share_batch_norm(step)
    return step


def two_steps(step: nn.Module, method: ImageMethod, rows: slice) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """The losses of two steps, the gradients of the second, and the state after it."""
    losses = []
    for seed in range(2):
        method.zero_grad()
        loss = step([view.double()[rows] for view in random_views(seed=seed)])
        torch.autograd.backward(loss)
        losses.append(loss.detach())
        gradients = {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}
        with torch.no_grad():
            for parameter in method.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.1 * parameter.grad)
        method.after_step()
    return torch.stack(losses), gradients, method.state_dict()


def two_steps_on_one_rank(version: int, backbone: str) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    step = step_of(version, backbone)
    return two_steps(DistributedDataParallel(step), step.method, own_rows(SHARE))


@pytest.mark.parametrize(("version", "backbone"), [(2, "resnet"), (3, "resnet"), (3, "vit")])
def test_steps_over_ranks_are_those_of_one_big_batch(tmp_path: Path, version: int, backbone: str) -> None:
    whole = step_of(version, backbone)
    losses, gradients, state = two_steps(whole, whole.method, slice(None))
    results = on_ranks(two_steps_on_one_rank, tmp_path, version, backbone)
    torch.testing.assert_close(torch.stack([result[0] for result in results]).mean(dim=0), losses)
    for _, found, _ in results:
        torch.testing.assert_close(found, gradients, rtol=1e-8, atol=1e-10)
    # In version 2 running statistics are those of a rank's own part; data-parallel training takes the first rank's.
    names = [name for name in state if "running" not in name or version == 3]
    for _, _, found in results:
        torch.testing.assert_close({name: found[name] for name in names}, {name: state[name] for name in names})


def queue_on_one_rank() -> tuple[Tensor, bool]:
    torch.manual_seed(0)
    queue = MemoryQueue(12, 3)
    for step in range(2):
        queue.push(keys(step)[own_rows(SHARE)])
    return queue.keys_kd, queue.is_full


def keys(step: int) -> Tensor:
    return torch.randn(N, 3, generator=torch.Generator().manual_seed(step))


def test_every_rank_queues_the_keys_of_all_in_their_order(tmp_path: Path) -> None:
    torch.manual_seed(0)
    alone = MemoryQueue(12, 3)
    for step in range(2):
        alone.push(keys(step))
    for found, full in on_ranks(queue_on_one_rank, tmp_path):
        torch.testing.assert_close(found, alone.keys_kd)
        assert full


def shuffled_on_one_rank() -> tuple[Tensor, Tensor]:
    torch.manual_seed(torch.distributed.get_rank())  # what was drawn earlier may differ
    seen: list[Tensor] = []

    def network(rows: Tensor) -> Tensor:
        seen.append(rows)
        return 2 * rows

    return computed_shuffled(network, torch.arange(float(N))[own_rows(SHARE), None]), seen[0]


def test_pictures_are_dealt_out_over_the_ranks_and_come_back_in_order(tmp_path: Path) -> None:
    results = on_ranks(shuffled_on_one_rank, tmp_path)
    outputs, seen = (torch.cat(each) for each in zip(*results, strict=True))
    torch.testing.assert_close(outputs, 2 * torch.arange(float(N))[:, None])
    assert sorted(seen.flatten().tolist()) == list(range(N))
    assert {int(row) for row in results[0][1]} != set(range(SHARE))


def parts_on_one_rank() -> int:
    step = step_of(2, "resnet")
    return len([layer for layer in step.modules() if isinstance(layer, SplitBatchNorm) and layer.parts == 1])


def test_as_many_parts_as_ranks_keep_the_statistics_of_each_rank_apart(tmp_path: Path) -> None:
    step = step_of(2, "resnet")
    norms = [layer for layer in step.modules() if isinstance(layer, SplitBatchNorm)]
    assert on_ranks(parts_on_one_rank, tmp_path) == [len(norms)] * RANKS
