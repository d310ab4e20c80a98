from __future__ import annotations

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity
from torch import Tensor

from twinlens.training.losses.byol import byol_regression
from twinlens.training.losses.negative_cosine import negative_cosine

N, D = 5, 4


def vectors(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def slow(p: Tensor, z: Tensor) -> Tensor:
    """Chen & He 2021, eq. 1, element by element."""
    total = torch.zeros((), dtype=torch.float64)
    for a, b in zip(p, z, strict=True):
        dot, aa, bb = (torch.zeros((), dtype=torch.float64) for _ in range(3))
        for i in range(D):
            dot, aa, bb = dot + a[i] * b[i], aa + a[i] ** 2, bb + b[i] ** 2
        total = total - dot / (aa.sqrt() * bb.sqrt())
    return total / N


def test_loss_and_gradients_equal_the_slow_transcription() -> None:
    p, z = vectors(0), vectors(1)
    fast, reference = negative_cosine(p, z), slow(p, z)
    torch.testing.assert_close(fast, reference, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(fast, (p, z)), torch.autograd.grad(reference, (p, z)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_it_equals_lightly() -> None:
    p, z = vectors(0), vectors(1)
    torch.testing.assert_close(negative_cosine(p, z), NegativeCosineSimilarity()(p, z), rtol=1e-12, atol=1e-12)


def test_equal_and_opposite_vectors_give_the_bounds() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    assert negative_cosine(eye, 5 * eye).item() == pytest.approx(-1, abs=1e-12)
    assert negative_cosine(eye, -eye).item() == pytest.approx(1, abs=1e-12)


def test_it_is_byols_loss_up_to_scale_and_offset() -> None:
    p, z = vectors(0), vectors(1)
    torch.testing.assert_close(2 + 2 * negative_cosine(p, z), byol_regression(p, z))


def test_half_precision_is_computed_in_fp32() -> None:
    p, z = vectors(0, torch.bfloat16), vectors(1, torch.bfloat16)
    loss = negative_cosine(p, z)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, negative_cosine(p.float(), z.float()))


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        negative_cosine(vectors(0), vectors(1)[:-1])
