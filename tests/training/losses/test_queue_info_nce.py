from __future__ import annotations

import math

import pytest
import torch
from lightly.loss import NTXentLoss
from torch import Tensor

from twinlens.training.losses.queue_info_nce import queue_info_nce

N, K, D = 5, 7, 4
TAU = 0.2


def vectors(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def unit(rows: int, seed: int) -> Tensor:
    return torch.nn.functional.normalize(vectors(rows, seed), dim=1).detach().requires_grad_()


def slow(q: Tensor, k: Tensor, queue: Tensor, tau: float) -> Tensor:
    """He et al. 2020, eq. 1, query by query and key by key."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(q)):
        anchor = q[i] / q[i].pow(2).sum().sqrt()
        positive = torch.exp(torch.dot(anchor, k[i] / k[i].pow(2).sum().sqrt()) / tau)
        denominator = positive
        for j in range(len(queue)):
            denominator = denominator + torch.exp(torch.dot(anchor, queue[j]) / tau)
        total = total - torch.log(positive / denominator)
    return total / len(q)


def test_loss_and_gradients_equal_the_slow_transcription() -> None:
    q, k, queue = vectors(N, 0), vectors(N, 1), unit(K, 2)
    fast, reference = queue_info_nce(q, k, queue, TAU), slow(q, k, queue, TAU)
    torch.testing.assert_close(fast, reference, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, (q, k, queue)) for loss in (fast, reference))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_it_is_the_cross_entropy_of_picking_the_positive_among_all_keys() -> None:
    q, k, queue = unit(N, 0), unit(N, 1), unit(K, 2)
    rows = [
        -torch.log_softmax(torch.cat([k[i : i + 1], queue]) @ q[i] / TAU, dim=0)[0]  # the positive and K others
        for i in range(N)
    ]
    torch.testing.assert_close(queue_info_nce(q, k, queue, TAU), torch.stack(rows).mean())


def test_it_equals_lightly_with_the_same_queue() -> None:
    q, k, queue = (each.detach().float() for each in (vectors(N, 0), vectors(N, 1), unit(K, 2)))
    theirs = NTXentLoss(temperature=TAU, memory_bank_size=(K, D))
    theirs.memory_bank.bank = queue
    torch.testing.assert_close(queue_info_nce(q, k, queue, TAU), theirs(q, k), rtol=1e-6, atol=1e-6)


def test_chance_is_the_logarithm_of_the_number_of_keys() -> None:
    one = torch.ones(N, D, dtype=torch.float64)
    queue = torch.nn.functional.normalize(torch.ones(K, D, dtype=torch.float64), dim=1)
    assert queue_info_nce(one, one, queue, TAU).item() == pytest.approx(math.log(K + 1), abs=1e-12)


def test_a_perfect_encoder_loses_what_the_closed_form_says() -> None:
    q = torch.eye(D, dtype=torch.float64)[:1].repeat(3, 1)
    queue = torch.eye(D, dtype=torch.float64)[1:3]  # orthogonal to the positive
    expected = math.log(1 + 2 * math.exp(-1 / TAU))
    assert queue_info_nce(q, q, queue, TAU).item() == pytest.approx(expected, abs=1e-12)


def test_other_keys_of_the_batch_are_no_negatives() -> None:
    q, k, queue = unit(N, 0), unit(N, 1), unit(K, 2)
    alone = torch.stack([queue_info_nce(q[i : i + 1], k[i : i + 1], queue, TAU) for i in range(N)]).mean()
    torch.testing.assert_close(queue_info_nce(q, k, queue, TAU), alone)


def test_lengths_do_not_count() -> None:
    q, k, queue = unit(N, 0), unit(N, 1), unit(K, 2)
    torch.testing.assert_close(queue_info_nce(3 * q, 0.1 * k, queue, TAU), queue_info_nce(q, k, queue, TAU))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_fp32(dtype: torch.dtype) -> None:
    q, k, queue = vectors(N, 0, dtype), vectors(N, 1, dtype), unit(K, 2).detach().float()
    loss = queue_info_nce(q, k, queue, 0.07)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, queue_info_nce(q.float(), k.float(), queue, 0.07))


def test_autocast_does_not_round_the_logits() -> None:
    q, k, queue = (each.detach().float() for each in (vectors(N, 0), vectors(N, 1), unit(K, 2)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = queue_info_nce(q, k, queue, 0.07)
    torch.testing.assert_close(loss, queue_info_nce(q, k, queue, 0.07), rtol=0, atol=0)


def test_what_does_not_fit_is_refused() -> None:
    q, k, queue = unit(N, 0), unit(N, 1), unit(K, 2)
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        queue_info_nce(q, k[:-1], queue, TAU)
    with pytest.raises(ValueError, match=r"\(K, 4\)"):
        queue_info_nce(q, k, queue[:, :-1], TAU)
    with pytest.raises(ValueError, match="at least 1"):
        queue_info_nce(q, k, queue[:0], TAU)
    with pytest.raises(ValueError, match="temperature"):
        queue_info_nce(q, k, queue, 0.0)
