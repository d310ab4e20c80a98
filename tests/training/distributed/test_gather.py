from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.support.ranks import on_ranks
from twinlens.training.losses.nt_xent import nt_xent
from twinlens.training.modules.gather import gather_with_gradients, own_rows, sum_over_ranks, world_size

RANKS, SHARE, D = 2, 3, 4


def leaf(seed: int, rows: int = RANKS * SHARE) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, D, generator=generator, dtype=torch.float64).requires_grad_()


def own(whole: Tensor) -> Tensor:
    return whole.detach()[own_rows(SHARE)].clone().requires_grad_()


def gathered_rows() -> tuple[Tensor, Tensor]:
    rank = dist.get_rank()
    rows = torch.full((2, 3), float(rank), requires_grad=True)
    gathered = gather_with_gradients(rows)
    # Rank r weighs the gathered rows by r + 1, so each row must hear 1 + 2 from the two ranks together.
    (gradient,) = torch.autograd.grad((gathered * (rank + 1)).sum(), rows)
    return gathered.detach(), gradient


def test_rows_come_in_the_order_of_the_ranks_and_hear_from_all_of_them(tmp_path: Path) -> None:
    for gathered, gradient in on_ranks(gathered_rows, tmp_path):
        torch.testing.assert_close(gathered, torch.tensor([[0.0] * 3] * 2 + [[1.0] * 3] * 2))
        torch.testing.assert_close(gradient, torch.full((2, 3), 3.0))


def summed() -> tuple[Tensor, Tensor]:
    rank = dist.get_rank()
    value = torch.tensor([1.0 + rank, 10.0], requires_grad=True)
    total = sum_over_ranks(value)
    (gradient,) = torch.autograd.grad((total * torch.tensor([1.0, rank])).sum(), value)
    return total.detach(), gradient


def test_a_sum_over_ranks_gives_everyone_everybodys_gradient(tmp_path: Path) -> None:
    for total, gradient in on_ranks(summed, tmp_path):
        torch.testing.assert_close(total, torch.tensor([3.0, 20.0]))
        torch.testing.assert_close(gradient, torch.tensor([2.0, 1.0]))


def loss_and_mean_gradients(shared_work: bool) -> tuple[Tensor, list[Tensor]]:
    """What data-parallel training makes of NT-Xent: each rank's loss, and the mean over ranks of the gradients."""
    weights = leaf(2, D)
    z_a, z_b = own(leaf(0)) @ weights, own(leaf(1)) @ weights
    anchors = own_rows(SHARE) if shared_work else None
    loss = nt_xent(gather_with_gradients(z_a), gather_with_gradients(z_b), 0.5, anchors=anchors)
    (gradient,) = torch.autograd.grad(loss, weights)
    dist.all_reduce(gradient)
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean / RANKS, [gradient / RANKS]


@pytest.mark.parametrize("shared_work", [True, False])
def test_nt_xent_over_ranks_is_nt_xent_of_the_whole_batch(tmp_path: Path, shared_work: bool) -> None:
    weights = leaf(2, D)
    expected = nt_xent(leaf(0) @ weights, leaf(1) @ weights, 0.5)
    (gradient,) = torch.autograd.grad(expected, weights)
    for loss, gradients in on_ranks(loss_and_mean_gradients, tmp_path, shared_work):
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(gradients, [gradient])


def test_without_a_distributed_run_everything_is_its_own() -> None:
    rows = leaf(0)
    assert gather_with_gradients(rows) is rows
    assert sum_over_ranks(rows) is rows
    assert world_size() == 1
    assert own_rows(5) == slice(0, 5)
