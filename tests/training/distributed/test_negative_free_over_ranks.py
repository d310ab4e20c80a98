from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.ranks import on_ranks
from tests.support.small_runs import empty_batch, random_views, small_backbone
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.gather import own_rows, world_size
from twinlens.training.modules.global_batch_norm import share_batch_norm

N, RANKS = 8, 2


class Step(nn.Module):
    """A step as a forward pass, which is what data-parallel training wraps."""

    def __init__(self, method: ImageMethod) -> None:
        super().__init__()
        self.method = method

    def forward(self, views: list[Tensor]) -> Tensor:
        return self.method.step(views, empty_batch(len(views[0]))).loss


def step_of(name: str) -> Step:
    kind = image_method(name)
    plan = RunPlan(steps=4, batch_size=N, dataset_size=32, size=16, world_size=world_size())
    step = Step(kind(small_backbone(), kind.Options.model_validate({"hidden": 12, "dim": 6}), plan)).double()
    share_batch_norm(step)
    return step


def after_a_step(step: nn.Module, method: ImageMethod, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
    loss = step([view.double()[rows] for view in random_views()])
    torch.autograd.backward(loss)
    gradients = {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}
    method.after_step()
    return loss.detach(), gradients | dict(method.named_buffers())


def on_one_rank(name: str) -> tuple[Tensor, dict[str, Tensor]]:
    step = step_of(name)
    return after_a_step(DistributedDataParallel(step), step.method, own_rows(N // RANKS))


@pytest.mark.parametrize("name", ["byol", "simsiam"])
def test_gradients_and_statistics_over_ranks_are_those_of_one_big_batch(tmp_path: Path, name: str) -> None:
    whole = step_of(name)
    loss, expected = after_a_step(whole, whole.method, slice(None))
    results = on_ranks(on_one_rank, tmp_path, name)
    torch.testing.assert_close(torch.stack([result[0] for result in results]).mean(), loss)
    for _, found in results:
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)
