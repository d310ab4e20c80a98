from __future__ import annotations

import math

import pytest
import torch
from lightly.loss import NTXentLoss
from torch import Tensor

from twinlens.training.losses.nt_xent import nt_xent

N, D = 5, 4


def projections(seed: int, n: int = N, d: int = D) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # Not of unit norm: the loss normalises.
    rows: Tensor = 3 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return rows.requires_grad_()


def slow_nt_xent(z_a: Tensor, z_b: Tensor, temperature: float) -> Tensor:
    """Chen et al. 2020, eq. 1 and algorithm 1, term by term: z_2k-1 and z_2k are the views of image k."""
    z = [view[k] for k in range(len(z_a)) for view in (z_a, z_b)]

    def similarity(i: int, j: int) -> Tensor:
        cosine: Tensor = torch.dot(z[i], z[j]) / (z[i].norm() * z[j].norm())
        return cosine

    def pair_loss(i: int, j: int) -> Tensor:
        terms = [torch.exp(similarity(i, k) / temperature) for k in range(len(z)) if k != i]
        assert len(terms) == len(z) - 1
        return -torch.log(torch.exp(similarity(i, j) / temperature) / sum(terms))

    total = torch.zeros((), dtype=torch.float64)
    for k in range(len(z_a)):
        total = total + pair_loss(2 * k, 2 * k + 1) + pair_loss(2 * k + 1, 2 * k)
    return total / len(z)


@pytest.mark.parametrize("temperature", [0.07, 0.5, 2.0])
def test_loss_and_gradients_equal_the_slow_transcription(temperature: float) -> None:
    z_a, z_b = projections(0), projections(1)
    fast, slow = nt_xent(z_a, z_b, temperature), slow_nt_xent(z_a, z_b, temperature)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    ours, theirs = torch.autograd.grad(fast, (z_a, z_b)), torch.autograd.grad(slow, (z_a, z_b))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gradients_pass_the_numerical_check() -> None:
    assert torch.autograd.gradcheck(lambda a, b: nt_xent(a, b, 0.5), (projections(2), projections(3)))


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_loss_and_gradients_equal_lightlys(temperature: float) -> None:
    z_a, z_b = projections(4, 16, 8), projections(5, 16, 8)
    ours, theirs = nt_xent(z_a, z_b, temperature), NTXentLoss(temperature)(z_a, z_b)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(ours, (z_a, z_b)), torch.autograd.grad(theirs, (z_a, z_b)))


def test_it_is_a_cross_entropy_with_the_positive_as_label_among_all_but_itself() -> None:
    z_a, z_b = projections(0), projections(1)
    z = torch.nn.functional.normalize(torch.cat([z_a, z_b]), dim=1)
    cosines = z @ z.T
    rows, labels = [], []
    for i in range(2 * N):
        others = [k for k in range(2 * N) if k != i]
        rows.append(cosines[i, others] / 0.5)
        labels.append(others.index((i + N) % (2 * N)))
    expected = torch.nn.functional.cross_entropy(torch.stack(rows), torch.tensor(labels))
    torch.testing.assert_close(nt_xent(z_a, z_b, 0.5), expected)


def test_equal_embeddings_lose_the_logarithm_of_all_but_itself() -> None:
    same = torch.ones(8, 3, dtype=torch.float64)
    assert nt_xent(same, same, 0.1).item() == pytest.approx(math.log(2 * 8 - 1), abs=1e-12)


def test_orthogonal_images_lose_what_the_closed_form_says() -> None:
    eye = torch.eye(6, dtype=torch.float64)
    # The positive is in the denominator: one term e^(1/τ) and 2n - 2 terms of 1.
    expected = -1 / 0.5 + math.log(math.exp(1 / 0.5) + 2 * 6 - 2)
    assert nt_xent(eye, 7 * eye, 0.5).item() == pytest.approx(expected, abs=1e-12)


def test_views_and_images_can_be_exchanged() -> None:
    z_a, z_b = projections(0), projections(1)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(nt_xent(z_a, z_b, 0.2), nt_xent(z_b, z_a, 0.2))
    torch.testing.assert_close(nt_xent(z_a, z_b, 0.2), nt_xent(z_a[order], z_b[order], 0.2))


def test_lengths_do_not_count_and_gradients_stand_upright_on_the_vectors() -> None:
    z_a, z_b = projections(0), projections(1)
    loss = nt_xent(z_a, z_b, 0.2)
    torch.testing.assert_close(loss, nt_xent(5 * z_a, 0.01 * z_b, 0.2))
    (gradient,) = torch.autograd.grad(loss, z_a)
    torch.testing.assert_close((gradient * z_a).sum(dim=1), torch.zeros(N, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_mean_over_slices_of_anchors_is_the_whole_loss_and_gradient() -> None:
    z_a, z_b = projections(0, 6), projections(1, 6)
    whole = nt_xent(z_a, z_b, 0.3)
    parts = torch.stack([nt_xent(z_a, z_b, 0.3, anchors=slice(start, start + 2)) for start in (0, 2, 4)]).mean()
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(torch.autograd.grad(parts, (z_a, z_b)), torch.autograd.grad(whole, (z_a, z_b)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    z_a, z_b = projections(0).detach().to(dtype), projections(1).detach().to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nt_xent(z_a, z_b, 0.07)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), slow_nt_xent(z_a.double(), z_b.double(), 0.07), rtol=1e-5, atol=1e-6)


def test_a_cold_temperature_stays_finite() -> None:
    z_a, z_b = projections(0), projections(1)
    loss = nt_xent(1e4 * z_a, 1e-4 * z_b, 1e-3)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in torch.autograd.grad(loss, (z_a, z_b)))


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="no negatives"):
        nt_xent(projections(0, 1), projections(1, 1), 0.5)


def test_views_of_different_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        nt_xent(projections(0, 4), projections(1, 5), 0.5)


@pytest.mark.parametrize("temperature", [0.0, -0.1])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        nt_xent(projections(0), projections(1), temperature)


def test_a_slice_without_anchors_is_refused() -> None:
    with pytest.raises(ValueError, match="none of the 5 images"):
        nt_xent(projections(0), projections(1), 0.5, anchors=slice(9, 10))
