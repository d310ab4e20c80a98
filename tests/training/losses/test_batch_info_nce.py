from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from twinlens.training.losses.batch_info_nce import batch_info_nce

N, D = 5, 4
TAU = 0.2


def vectors(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def slow(q: Tensor, k: Tensor, tau: float) -> Tensor:
    """Chen, Xie & He 2021, eq. 1 and the factor of algorithm 1, with q_i and k_i of unit length."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(q)):
        anchor = q[i] / q[i].pow(2).sum().sqrt()
        terms = [torch.exp(torch.dot(anchor, key / key.pow(2).sum().sqrt()) / tau) for key in k]
        denominator = torch.zeros((), dtype=torch.float64)
        for term in terms:
            denominator = denominator + term
        total = total - torch.log(terms[i] / denominator)
    return 2 * tau * total / len(q)


def test_loss_and_gradients_equal_the_slow_transcription() -> None:
    q, k = vectors(N, 0), vectors(N, 1)
    fast, reference = batch_info_nce(q, k, TAU), slow(q, k, TAU)
    torch.testing.assert_close(fast, reference, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(fast, (q, k)), torch.autograd.grad(reference, (q, k)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_constant_embeddings_lose_the_scaled_logarithm_of_the_batch() -> None:
    one = torch.ones(N, D, dtype=torch.float64)
    assert batch_info_nce(one, one, TAU).item() == pytest.approx(2 * TAU * math.log(N), abs=1e-12)


def test_a_perfect_encoder_loses_what_the_closed_form_says() -> None:
    eye = torch.eye(D, dtype=torch.float64)
    expected = 2 * TAU * math.log(1 + (D - 1) * math.exp(-1 / TAU))
    assert batch_info_nce(eye, 3 * eye, TAU).item() == pytest.approx(expected, abs=1e-12)


def test_the_order_of_the_pictures_does_not_count() -> None:
    q, k, order = vectors(N, 0), vectors(N, 1), torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(batch_info_nce(q[order], k[order], TAU), batch_info_nce(q, k, TAU))


def test_the_mean_over_ranks_is_the_loss_of_the_whole_batch() -> None:
    q, k = vectors(6, 0), vectors(6, 1)
    parts = [batch_info_nce(q[first : first + 2], k, TAU, first=first) for first in (0, 2, 4)]
    torch.testing.assert_close(torch.stack(parts).mean(), batch_info_nce(q, k, TAU))


def test_half_precision_is_computed_in_fp32() -> None:
    q, k = vectors(N, 0, torch.bfloat16), vectors(N, 1, torch.bfloat16)
    loss = batch_info_nce(q, k, TAU)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, batch_info_nce(q.float(), k.float(), TAU))


def test_what_does_not_fit_is_refused() -> None:
    q, k = vectors(N, 0), vectors(N, 1)
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        batch_info_nce(q, k[:, :-1], TAU)
    with pytest.raises(ValueError, match="do not fit"):
        batch_info_nce(q, k, TAU, first=1)
    with pytest.raises(ValueError, match="teaches nothing"):
        batch_info_nce(q[:1], k[:1], TAU)
    with pytest.raises(ValueError, match="temperature"):
        batch_info_nce(q, k, -1.0)
