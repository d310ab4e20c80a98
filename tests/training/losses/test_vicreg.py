from __future__ import annotations

import pytest
import torch
from lightly.loss import VICRegLoss
from torch import Tensor

from twinlens.training.losses.vicreg import vicreg

N, D = 6, 4


def views(n: int = N, d: int = D, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    # Standard deviations on both sides of the hinge at 1.
    scale = torch.linspace(0.3, 1.8, d, dtype=torch.float64)
    a, b = (torch.randn(n, d, generator=generator, dtype=torch.float64) * scale for _ in range(2))
    return a.requires_grad_(), b.requires_grad_()


def slow_terms(z_a: Tensor, z_b: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Bardes et al. 2022, eq. 1 to 5, term by term, with the two factors of the authors' code."""
    n, d = z_a.shape

    def covariance(z: Tensor, i: int, j: int) -> Tensor:
        mean_i, mean_j = sum(z[b, i] for b in range(n)) / n, sum(z[b, j] for b in range(n)) / n
        products: Tensor = sum(((z[b, i] - mean_i) * (z[b, j] - mean_j) for b in range(n)), torch.zeros(()))
        return products / (n - 1)

    def v(z: Tensor) -> Tensor:
        hinges = (torch.clamp(1 - torch.sqrt(covariance(z, j, j) + epsilon), min=0) for j in range(d))
        return sum(hinges, torch.zeros(())) / d

    def c(z: Tensor) -> Tensor:
        squares = (covariance(z, i, j) ** 2 for i in range(d) for j in range(d) if i != j)
        return sum(squares, torch.zeros(())) / d

    distances = ((z_a[b, i] - z_b[b, i]) ** 2 for b in range(n) for i in range(d))
    s = sum(distances, torch.zeros(())) / n
    return s / d, (v(z_a) + v(z_b)) / 2, c(z_a) + c(z_b)


def test_terms_and_gradients_equal_the_slow_transcription() -> None:
    z_a, z_b = views()
    fast = vicreg(z_a, z_b)
    slow = slow_terms(z_a, z_b, 1e-4)
    total = 25 * slow[0] + 25 * slow[1] + slow[2]
    torch.testing.assert_close((fast.invariance, fast.variance, fast.covariance), slow, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(fast.loss, total, rtol=1e-11, atol=1e-12)
    assert float(fast.variance.detach()) > 0
    ours, theirs = torch.autograd.grad(fast.loss, (z_a, z_b)), torch.autograd.grad(total, (z_a, z_b))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_loss_and_gradients_equal_lightlys() -> None:
    z_a, z_b = views(20, 8)
    ours = vicreg(z_a, z_b, invariance_weight=10.0, variance_weight=5.0, covariance_weight=2.0).loss
    theirs = VICRegLoss(10.0, 5.0, 2.0)(z_a, z_b)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(torch.autograd.grad(ours, (z_a, z_b)), torch.autograd.grad(theirs, (z_a, z_b)))


def test_equal_wide_and_uncorrelated_views_cost_nothing() -> None:
    z = 2 * torch.tensor([[1, 1, 1], [-1, 1, -1], [1, -1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert float(vicreg(z, z).loss) == pytest.approx(0.0, abs=1e-20)


def test_collapsed_embeddings_cost_the_whole_hinge() -> None:
    z = torch.full((4, 3), 7.0)
    terms = vicreg(z, z)
    assert float(terms.invariance) == 0.0
    assert float(terms.variance) == pytest.approx(1 - 1e-2)  # 1 - √ε
    assert float(terms.covariance) == 0.0


def test_copied_dimensions_cost_covariance() -> None:
    column = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    z = torch.stack([column, column], dim=1)
    # Var = Cov = 4/3 with n - 1; two terms off the diagonal, over d = 2, in two views.
    assert float(vicreg(z, z).covariance) == pytest.approx(2 * (4 / 3) ** 2)


def test_swapping_the_views_changes_nothing_and_neither_does_a_shared_shift_or_sign() -> None:
    z_a, z_b = views()
    expected = vicreg(z_a, z_b).loss
    torch.testing.assert_close(vicreg(z_b, z_a).loss, expected)
    torch.testing.assert_close(vicreg(4 - z_a, 4 - z_b).loss, expected)


def test_collapsed_embeddings_have_finite_gradients() -> None:
    z = torch.zeros(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(vicreg(z, z).loss, z)
    assert torch.isfinite(gradient).all()


def test_half_precision_is_computed_in_single() -> None:
    z_a, z_b = (each.detach().to(torch.bfloat16) for each in views(16, 8))
    assert vicreg(z_a, z_b).loss.dtype == torch.float32
    torch.testing.assert_close(vicreg(z_a, z_b).loss, vicreg(z_a.float(), z_b.float()).loss)


def test_a_batch_of_one_and_unequal_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="batch of one"):
        vicreg(torch.ones(1, 3), torch.ones(1, 3))
    with pytest.raises(ValueError, match="alike"):
        vicreg(torch.ones(2, 3), torch.ones(3, 3))
