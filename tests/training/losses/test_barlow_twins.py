from __future__ import annotations

import pytest
import torch
from lightly.loss import BarlowTwinsLoss
from torch import Tensor

from twinlens.training.losses.barlow_twins import barlow_twins

N, D = 7, 4


def views(n: int = N, d: int = D, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    # Means and spreads differ by dimension: the loss standardises.
    scale = torch.arange(1, d + 1, dtype=torch.float64)
    a, b = ((shared + 0.5 * each) * scale + scale for each in noise)
    return a.requires_grad_(), b.requires_grad_()


def slow_barlow_twins(z_a: Tensor, z_b: Tensor, weight: float, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Zbontar et al. 2021, eq. 1 and 2, term by term, on embeddings centred over the batch as the paper says."""
    n, d = z_a.shape

    def centred(z: Tensor, i: int) -> list[Tensor]:
        mean = sum(z[b, i] for b in range(n)) / n
        return [z[b, i] - mean for b in range(n)]

    invariance = redundancy = torch.zeros((), dtype=torch.float64)
    for i in range(d):
        for j in range(d):
            a, b = centred(z_a, i), centred(z_b, j)
            # Both roots of eq. 2, times √n each, with batch norm's ε in them.
            energies = [sum((x * x for x in each), torch.zeros(())) + n * epsilon for each in (a, b)]
            norms = torch.sqrt(energies[0]) * torch.sqrt(energies[1])
            correlation = sum(x * y for x, y in zip(a, b, strict=True)) / norms
            if i == j:
                invariance = invariance + (1 - correlation) ** 2
            else:
                redundancy = redundancy + correlation**2
    return invariance + weight * redundancy, invariance, redundancy


@pytest.mark.parametrize("epsilon", [0.0, 1e-5])
def test_terms_and_gradients_equal_the_slow_transcription(epsilon: float) -> None:
    z_a, z_b = views()
    fast = barlow_twins(z_a, z_b, redundancy_weight=0.3, epsilon=epsilon)
    slow = slow_barlow_twins(z_a, z_b, 0.3, epsilon)
    torch.testing.assert_close((fast.loss, fast.invariance, fast.redundancy), slow, rtol=1e-11, atol=1e-12)
    ours, theirs = torch.autograd.grad(fast.loss, (z_a, z_b)), torch.autograd.grad(slow[0], (z_a, z_b))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_loss_and_gradients_equal_lightlys() -> None:
    z_a, z_b = views(24, 8)
    ours = barlow_twins(z_a, z_b, redundancy_weight=0.005).loss
    theirs = BarlowTwinsLoss(lambda_param=0.005)(z_a, z_b)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(torch.autograd.grad(ours, (z_a, z_b)), torch.autograd.grad(theirs, (z_a, z_b)))


def test_views_that_are_equal_and_uncorrelated_cost_nothing() -> None:
    # Columns of a Hadamard matrix but the first: mean 0 and orthogonal.
    z = torch.tensor([[1, 1, 1], [-1, 1, -1], [1, -1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert float(barlow_twins(z, z, epsilon=0.0).loss) == pytest.approx(0.0, abs=1e-20)


def test_opposite_views_cost_four_a_dimension_and_copied_dimensions_cost_redundancy() -> None:
    z = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    terms = barlow_twins(z, -z, epsilon=0.0)
    assert float(terms.invariance) == pytest.approx(8.0)
    assert float(terms.redundancy) == pytest.approx(2.0)


def test_swapping_the_views_changes_nothing() -> None:
    z_a, z_b = views()
    torch.testing.assert_close(barlow_twins(z_a, z_b).loss, barlow_twins(z_b, z_a).loss)


def test_shift_and_scale_of_a_dimension_change_nothing() -> None:
    z_a, z_b = views()
    factors = torch.tensor([0.5, 3.0, 10.0, 1.0], dtype=torch.float64)
    moved = barlow_twins(z_a * factors + 5, z_b, epsilon=0.0)
    torch.testing.assert_close(moved.loss, barlow_twins(z_a, z_b, epsilon=0.0).loss)


def test_a_constant_dimension_has_finite_gradients() -> None:
    z = torch.zeros(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(barlow_twins(z, z).loss, z)
    assert torch.isfinite(gradient).all()


def test_half_precision_is_computed_in_single() -> None:
    z_a, z_b = (each.detach().to(torch.float16) for each in views(16, 8))
    assert barlow_twins(z_a, z_b).loss.dtype == torch.float32
    torch.testing.assert_close(barlow_twins(z_a, z_b).loss, barlow_twins(z_a.float(), z_b.float()).loss)


def test_a_batch_of_one_and_unequal_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="batch of one"):
        barlow_twins(torch.ones(1, 3), torch.ones(1, 3))
    with pytest.raises(ValueError, match="alike"):
        barlow_twins(torch.ones(2, 3), torch.ones(2, 4))
