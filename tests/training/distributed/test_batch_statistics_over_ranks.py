from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from tests.support.ranks import on_ranks
from tests.support.small_runs import small_backbone
from twinlens.training.collapse.assignments import assignment_use
from twinlens.training.losses.barlow_twins import barlow_twins
from twinlens.training.losses.sinkhorn import sinkhorn
from twinlens.training.losses.vicreg import vicreg
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.swav import SwAV, SwAVOptions
from twinlens.training.modules.centre import Centre
from twinlens.training.modules.gather import own_rows

RANKS, SHARE, D = 2, 5, 4
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "barlow_twins": lambda a, b: barlow_twins(a, b, redundancy_weight=0.3).loss,
    "vicreg": lambda a, b: vicreg(a, b).loss,
}


def rows(seed: int, count: int = RANKS * SHARE, d: int = D) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # The ranks' halves differ in mean and spread, so that statistics of one half are wrong.
    drift = torch.linspace(0.2, 2.0, count, dtype=torch.float64)[:, None]
    return drift + drift * torch.randn(count, d, generator=generator, dtype=torch.float64)


def loss_and_gradient(name: str, part: slice) -> tuple[Tensor, Tensor]:
    weights = rows(2, D).requires_grad_()
    loss = LOSSES[name](rows(0)[part] @ weights, rows(1)[part] @ weights)
    (gradient,) = torch.autograd.grad(loss, weights)
    return loss.detach(), gradient


def losses_on_a_rank() -> dict[str, tuple[Tensor, Tensor]]:
    found = {}
    for name in LOSSES:
        loss, gradient = loss_and_gradient(name, own_rows(SHARE))
        dist.all_reduce(gradient)
        found[name] = loss, gradient / RANKS
    return found


def test_losses_of_batch_statistics_are_those_of_the_whole_batch_with_their_gradients(tmp_path: Path) -> None:
    for found in on_ranks(losses_on_a_rank, tmp_path):
        for name in LOSSES:
            torch.testing.assert_close(found[name], loss_and_gradient(name, slice(None)))


def codes_centre_and_use(iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    own = own_rows(SHARE)
    centre = Centre(D)
    centre.update(rows(4)[own])
    information = assignment_use(rows(3)[own].softmax(dim=1)).information
    return sinkhorn(rows(3)[own], iterations=iterations), centre.value, information


@pytest.mark.parametrize("iterations", [1, 3])
def test_codes_centre_and_watch_are_those_of_the_whole_batch(tmp_path: Path, iterations: int) -> None:
    results = on_ranks(codes_centre_and_use, tmp_path, iterations)
    torch.testing.assert_close(torch.cat([codes for codes, _, _ in results]), sinkhorn(rows(3), iterations=iterations))
    for _, centre, information in results:
        torch.testing.assert_close(centre, 0.1 * rows(4).mean(dim=0).float())
        torch.testing.assert_close(information, assignment_use(rows(3).softmax(dim=1)).information)


def codes_with_a_queue(part: slice | None) -> Tensor:
    torch.manual_seed(0)
    plan = RunPlan(steps=1, batch_size=RANKS * SHARE, dataset_size=64, size=16)
    options = SwAVOptions(hidden=8, dim=D, prototypes=3, queue_size=2 * RANKS * SHARE, queue_start_epoch=0.0)
    method = SwAV(small_backbone(), options, plan)
    own = own_rows(SHARE) if part is None else part
    for seed in (5, 6):
        embeddings = normalize(rows(seed)[own].float(), dim=1)
        method._remember((embeddings, embeddings))
    return method._codes(method.prototypes(normalize(rows(7)[own].float(), dim=1)).detach(), 0)


def test_the_queue_counts_once_however_many_ranks_hold_it(tmp_path: Path) -> None:
    found = torch.cat(on_ranks(codes_with_a_queue, tmp_path, None))
    torch.testing.assert_close(found, codes_with_a_queue(slice(None)), rtol=1e-4, atol=1e-6)
