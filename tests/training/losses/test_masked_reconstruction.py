from __future__ import annotations

import pytest
import torch
from torch import Tensor

from twinlens.training.losses.masked_reconstruction import masked_reconstruction

N, L, P = 3, 5, 7


def drawn(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, L, P, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.fixture
def mask() -> Tensor:
    # Not as many in each picture: the mean is over hidden patches, not over pictures.
    return torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)


def slow(predicted: Tensor, patches: Tensor, masked: Tensor, *, normalise: bool, epsilon: float = 1e-6) -> Tensor:
    """The docstring's equation, value by value."""
    total, hidden = torch.zeros((), dtype=torch.float64), 0
    for i in range(N):
        for patch in range(L):
            if not masked[i, patch]:
                continue
            hidden += 1
            values: list[Tensor] = [patches[i, patch, j] for j in range(P)]
            if normalise:
                mean = torch.stack(values).sum() / P
                variance = torch.stack([(value - mean) ** 2 for value in values]).sum() / (P - 1)
                values = [(value - mean) / torch.sqrt(variance + epsilon) for value in values]
            for j in range(P):
                total = total + (predicted[i, patch, j] - values[j]) ** 2 / P
    return total / hidden


@pytest.mark.parametrize("normalise", [True, False])
def test_loss_and_gradients_equal_the_slow_transcription(mask: Tensor, normalise: bool) -> None:
    predicted, patches = drawn(0), drawn(1)
    fast = masked_reconstruction(predicted, patches, mask, normalise=normalise)
    expected = slow(predicted, patches, mask, normalise=normalise)
    torch.testing.assert_close(fast, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(fast, (predicted, patches)),
        torch.autograd.grad(expected, (predicted, patches)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_target_is_that_of_lightly(mask: Tensor) -> None:
    from lightly.models.utils import normalize_mean_var

    predicted, patches = drawn(2), drawn(3)
    # As in lightly's documented MAE: mean squared error over the masked patches, gathered.
    target = normalize_mean_var(patches)
    expected = torch.nn.functional.mse_loss(predicted[mask], target[mask])
    torch.testing.assert_close(masked_reconstruction(predicted, patches, mask), expected, rtol=1e-12, atol=1e-12)


def test_what_was_visible_does_not_count(mask: Tensor) -> None:
    predicted, patches = drawn(4), drawn(5)
    (gradient,) = torch.autograd.grad(masked_reconstruction(predicted, patches, mask), predicted)
    assert bool((gradient[~mask] == 0).all())
    assert bool((gradient[mask] != 0).all())


def test_a_perfect_prediction_loses_nothing_and_predicting_the_mean_loses_the_variance(mask: Tensor) -> None:
    patches = drawn(6).detach()
    assert masked_reconstruction(patches, patches, mask, normalise=False).item() == 0
    # A normalised patch has a variance of (p - 1) / p.
    blank = torch.zeros_like(patches)
    loss = masked_reconstruction(blank, patches, mask, epsilon=0.0).item()
    assert loss == pytest.approx((P - 1) / P, abs=1e-12)


def test_brightness_and_contrast_of_a_patch_do_not_matter_when_patches_are_normalised(mask: Tensor) -> None:
    predicted, patches = drawn(7), drawn(8).detach()
    changed = 3 * patches + torch.arange(L, dtype=torch.float64)[None, :, None]
    torch.testing.assert_close(
        masked_reconstruction(predicted, patches, mask, epsilon=0.0),
        masked_reconstruction(predicted, changed, mask, epsilon=0.0),
    )


def test_flat_patches_stay_finite(mask: Tensor) -> None:
    predicted = drawn(9)
    flat = torch.ones(N, L, P, dtype=torch.float64, requires_grad=True)
    loss = masked_reconstruction(predicted, flat, mask)
    assert all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(loss, (predicted, flat)))
    torch.testing.assert_close(loss, predicted[mask].square().mean())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(mask: Tensor, dtype: torch.dtype) -> None:
    predicted, patches = drawn(10).to(dtype), drawn(11).to(dtype)
    loss = masked_reconstruction(predicted, patches, mask)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, slow(predicted.double(), patches.double(), mask, normalise=True).float())


def test_shapes_that_do_not_fit_are_refused(mask: Tensor) -> None:
    with pytest.raises(ValueError, match=r"\(n, l, p\)"):
        masked_reconstruction(drawn(0), drawn(1)[:, :, 1:], mask)
    with pytest.raises(ValueError, match=r"\(n, l\)"):
        masked_reconstruction(drawn(0), drawn(1), mask[:, 1:])
