from __future__ import annotations

import math

import pytest
import torch
from lightly.loss.swav_loss import sinkhorn as lightly_sinkhorn
from torch import Tensor

from twinlens.training.losses.sinkhorn import sinkhorn


def cosines(seed: int, n: int = 12, k: int = 5, d: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randn(n, d, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(k, d, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(pictures, dim=1) @ torch.nn.functional.normalize(prototypes, dim=1).T


def slow_sinkhorn(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The authors' `distributed_sinkhorn`, cell by cell in float64: Q is (prototypes, pictures) there."""
    n, k = scores.shape
    q = [[math.exp(float(scores[b, j]) / epsilon) for b in range(n)] for j in range(k)]
    total = sum(sum(row) for row in q)
    q = [[cell / total for cell in row] for row in q]
    for _ in range(iterations):
        for j in range(k):
            row_sum = sum(q[j])
            q[j] = [cell / row_sum / k for cell in q[j]]
        for b in range(n):
            column_sum = sum(q[j][b] for j in range(k))
            for j in range(k):
                q[j][b] = q[j][b] / column_sum / n
    return torch.tensor([[q[j][b] * n for j in range(k)] for b in range(n)], dtype=torch.float64)


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_codes_equal_the_slow_transcription(epsilon: float, iterations: int) -> None:
    scores = cosines(0)
    expected = slow_sinkhorn(scores, epsilon, iterations)
    torch.testing.assert_close(sinkhorn(scores, epsilon=epsilon, iterations=iterations), expected, rtol=1e-11, atol=0.0)


def test_codes_in_single_precision_equal_the_float64_reference_at_three_iterations() -> None:
    scores = cosines(1, n=64, k=16)
    expected = slow_sinkhorn(scores, 0.05, 3)
    torch.testing.assert_close(sinkhorn(scores.float()).double(), expected, rtol=1e-4, atol=1e-7)


def test_codes_equal_lightlys() -> None:
    scores = cosines(2, n=32, k=10)
    torch.testing.assert_close(sinkhorn(scores), lightly_sinkhorn(scores), rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("iterations", [1, 3, 100])
def test_every_picture_has_exactly_one_unit_of_code(dtype: torch.dtype, iterations: int) -> None:
    codes = sinkhorn(cosines(3, n=40, k=7).to(dtype), iterations=iterations)
    assert codes.dtype == torch.float32
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(40), rtol=0.0, atol=3e-7)


@pytest.mark.parametrize(("n", "k"), [(48, 6), (6, 48), (16, 16)])
def test_prototypes_are_used_alike_at_a_hundred_iterations(n: int, k: int) -> None:
    codes = sinkhorn(cosines(4, n=n, k=k).float(), iterations=100)
    torch.testing.assert_close(codes.sum(dim=0), torch.full((k,), n / k), rtol=1e-3, atol=0.0)
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(n), rtol=0.0, atol=3e-7)


def test_the_limit_maximises_the_published_objective() -> None:
    """Eq. 3: no move that keeps both marginals raises <Q, S> + ε H(Q)."""
    scores, epsilon = cosines(5), 0.2
    codes = sinkhorn(scores, epsilon=epsilon, iterations=2000)

    def objective(q: Tensor) -> float:
        return float((q * scores).sum() + epsilon * torch.special.entr(q).sum())

    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        move = torch.randn(codes.shape, generator=generator, dtype=torch.float64)
        move = move - move.mean(dim=0) - move.mean(dim=1, keepdim=True) + move.mean()
        move = move * 0.5 * (codes / move.abs()).min()
        assert objective(codes + move) < objective(codes)


def test_balanced_scores_give_their_own_softmax() -> None:
    """A circulant matrix has equal row and column sums, so there is nothing to balance."""
    row = torch.tensor([0.9, 0.1, -0.3, 0.2], dtype=torch.float64)
    scores = torch.stack([row.roll(shift) for shift in range(4)])
    torch.testing.assert_close(sinkhorn(scores), torch.softmax(scores / 0.05, dim=1))


def test_pictures_that_are_all_alike_are_spread_evenly() -> None:
    scores = cosines(6)[:1].expand(9, -1)
    torch.testing.assert_close(sinkhorn(scores), torch.full((9, 5), 0.2, dtype=torch.float64))


def test_codes_follow_the_order_of_pictures_and_prototypes() -> None:
    scores = cosines(7)
    pictures, prototypes = torch.randperm(12), torch.randperm(5)
    shuffled = sinkhorn(scores[pictures][:, prototypes])
    torch.testing.assert_close(shuffled, sinkhorn(scores)[pictures][:, prototypes])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("norm", [1.0, 50.0, 3e4])
def test_codes_are_finite_and_balanced_on_features_of_any_norm(dtype: torch.dtype, norm: float) -> None:
    scores = (norm * cosines(8, n=32, k=6)).to(dtype)
    assert torch.isfinite(scores).all()
    for iterations in (1, 3, 100):
        codes = sinkhorn(scores, iterations=iterations)
        assert torch.isfinite(codes).all()
        torch.testing.assert_close(codes.sum(dim=1), torch.ones(32), rtol=0.0, atol=3e-7)


def test_unnormalised_half_precision_scores_give_what_float64_gives_for_the_same_numbers() -> None:
    # exp(20 / 0.05) leaves the range of float32 and stays within that of float64.
    scores = (20 * cosines(9, n=24, k=4)).to(torch.float16)
    expected = slow_sinkhorn(scores.double(), 0.05, 3)
    torch.testing.assert_close(sinkhorn(scores).double(), expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("iterations", [1, 3, 100])
def test_factors_and_logarithms_give_the_same(monkeypatch: pytest.MonkeyPatch, iterations: int) -> None:
    scores = cosines(11, n=30, k=6).float()
    by_factors = sinkhorn(scores, iterations=iterations)
    monkeypatch.setattr("twinlens.training.losses.sinkhorn._LEAST_EXPONENT", 0.0)
    torch.testing.assert_close(sinkhorn(scores, iterations=iterations), by_factors, rtol=1e-4, atol=1e-7)


def test_autocast_changes_nothing() -> None:
    scores = cosines(12).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        codes = sinkhorn(scores)
    assert torch.equal(codes, sinkhorn(scores))


def test_codes_carry_no_gradient() -> None:
    assert not sinkhorn(cosines(10).requires_grad_()).requires_grad


@pytest.mark.parametrize(
    ("scores", "epsilon", "iterations"),
    [
        (torch.ones(3), 0.05, 3),
        (torch.ones(0, 3), 0.05, 3),
        (torch.ones(2, 3), 0.0, 3),
        (torch.ones(2, 3), 0.05, 0),
    ],
)
def test_what_is_no_assignment_is_refused(scores: Tensor, epsilon: float, iterations: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        sinkhorn(scores, epsilon=epsilon, iterations=iterations)
