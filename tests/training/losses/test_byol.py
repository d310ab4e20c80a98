from __future__ import annotations

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity
from torch import Tensor

from twinlens.training.losses.byol import byol_regression

N, D = 5, 4


def vectors(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def slow(prediction: Tensor, target: Tensor) -> Tensor:
    """Grill et al. 2020, eq. 2, as the squared distance of the normalised vectors, element by element."""
    total = torch.zeros((), dtype=torch.float64)
    for p, t in zip(prediction, target, strict=True):
        p_bar, t_bar = p / p.pow(2).sum().sqrt(), t / t.pow(2).sum().sqrt()
        for i in range(D):
            total = total + (p_bar[i] - t_bar[i]) ** 2
    return total / N


def test_loss_and_gradients_equal_the_slow_transcription() -> None:
    p, t = vectors(0), vectors(1)
    fast, reference = byol_regression(p, t), slow(p, t)
    torch.testing.assert_close(fast, reference, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(fast, (p, t)), torch.autograd.grad(reference, (p, t)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_it_is_two_more_than_twice_the_negative_cosine_of_lightly() -> None:
    p, t = vectors(0), vectors(1)
    torch.testing.assert_close(byol_regression(p, t), 2 + 2 * NegativeCosineSimilarity()(p, t))


def test_equal_opposite_and_orthogonal_vectors_lose_0_4_and_2() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    assert byol_regression(eye, 5 * eye).item() == pytest.approx(0, abs=1e-12)
    assert byol_regression(eye, -eye).item() == pytest.approx(4, abs=1e-12)
    assert byol_regression(eye, eye.roll(1, 0)).item() == pytest.approx(2, abs=1e-12)


def test_prediction_and_target_are_interchangeable_in_value() -> None:
    p, t = vectors(0), vectors(1)
    torch.testing.assert_close(byol_regression(p, t), byol_regression(t, p))


def test_the_gradient_never_changes_a_length() -> None:
    p, t = vectors(0), vectors(1)
    (gradient,) = torch.autograd.grad(byol_regression(p, t), p)
    torch.testing.assert_close((gradient * p).sum(dim=1), torch.zeros(N, dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_fp32(dtype: torch.dtype) -> None:
    p, t = vectors(0, dtype), vectors(1, dtype)
    loss = byol_regression(p, t)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, byol_regression(p.float(), t.float()))


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        byol_regression(vectors(0), vectors(1)[:-1])
