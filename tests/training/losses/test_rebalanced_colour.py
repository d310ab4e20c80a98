from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from twinlens.training.losses.rebalanced_colour import rebalanced_cross_entropy

N, Q, H, W, K = 2, 6, 3, 2, 3


def drawn_logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, Q, H, W, generator=generator, dtype=torch.float64).requires_grad_()


def drawn_targets(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    bins = torch.rand(N, H, W, Q, generator=generator).argsort(dim=-1)[..., :K]
    return bins, torch.rand(N, H, W, K, generator=generator, dtype=torch.float64).softmax(dim=-1)


@pytest.fixture
def weights() -> Tensor:
    return torch.tensor([0.2, 3.0, 1.0, 0.5, 7.0, 1.5], dtype=torch.float64)


def slow(logits: Tensor, bins: Tensor, shares: Tensor, weights: Tensor) -> Tensor:
    """Equations 2 and 3 of the paper with the dense target Z, term by term."""
    total = torch.zeros((), dtype=torch.float64)
    for n in range(N):
        for h in range(H):
            for w in range(W):
                z = [0.0] * Q
                for k in range(K):
                    z[int(bins[n, h, w, k])] = float(shares[n, h, w, k])
                denominator = sum(torch.exp(logits[n, q, h, w]) for q in range(Q))
                v = weights[max(range(Q), key=lambda q: z[q])]
                for q in range(Q):
                    total = total - v * z[q] * torch.log(torch.exp(logits[n, q, h, w]) / denominator)
    return total / (N * H * W)


def test_loss_and_gradient_equal_the_slow_transcription(weights: Tensor) -> None:
    logits, (bins, shares) = drawn_logits(0), drawn_targets(1)
    fast = rebalanced_cross_entropy(logits, bins, shares, weights)
    expected = slow(logits, bins, shares, weights)
    torch.testing.assert_close(fast, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(fast, logits)[0], torch.autograd.grad(expected, logits)[0], rtol=1e-10, atol=1e-12
    )


def test_with_hard_targets_and_equal_weights_it_is_the_ordinary_cross_entropy() -> None:
    logits, (bins, _) = drawn_logits(2), drawn_targets(3)
    one = torch.ones(N, H, W, 1, dtype=torch.float64)
    loss = rebalanced_cross_entropy(logits, bins[..., :1], one, torch.ones(Q, dtype=torch.float64))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, bins[..., 0]))


def test_equal_scores_lose_the_logarithm_of_the_number_of_bins() -> None:
    bins, shares = drawn_targets(4)
    loss = rebalanced_cross_entropy(torch.zeros(N, Q, H, W), bins, shares, torch.ones(Q))
    assert loss.item() == pytest.approx(math.log(Q), abs=1e-6)


def test_a_pixel_counts_by_the_weight_of_its_likeliest_bin(weights: Tensor) -> None:
    logits = drawn_logits(5)
    bins, shares = drawn_targets(6)
    plain = torch.autograd.grad(
        rebalanced_cross_entropy(logits, bins, shares, torch.ones(Q, dtype=torch.float64)), logits
    )[0]
    weighted = torch.autograd.grad(rebalanced_cross_entropy(logits, bins, shares, weights), logits)[0]
    likeliest = bins.gather(-1, shares.argmax(dim=-1, keepdim=True))[..., 0]
    torch.testing.assert_close(weighted, plain * weights[likeliest].unsqueeze(1))


def test_half_precision_is_computed_in_single(weights: Tensor) -> None:
    logits, (bins, shares) = drawn_logits(7).bfloat16(), drawn_targets(8)
    loss = rebalanced_cross_entropy(logits, bins, shares.float(), weights.float())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, slow(logits.double(), bins, shares, weights).float())


def test_shapes_that_do_not_fit_are_refused(weights: Tensor) -> None:
    bins, shares = drawn_targets(0)
    with pytest.raises(ValueError, match="do not fit"):
        rebalanced_cross_entropy(drawn_logits(0), bins[:, 1:], shares[:, 1:], weights)
    with pytest.raises(ValueError, match="do not fit"):
        rebalanced_cross_entropy(drawn_logits(0), bins, shares, weights[1:])
