from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tests.support.pair_features import assert_same_loss_and_gradients, busy_batch, perfect_batch, same, unit
from twinlens.training.losses.debiased import debiased_info_nce
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures, of_one_process


def factor(value: float = 3.0) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def slow(features: PairFeatures, scale: Tensor, tau_plus: float) -> Tensor:
    """The docstring's equation, term by term."""
    n = len(features.images_nd)
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for i in range(n):
        own = torch.zeros((), dtype=torch.float64)
        for anchors, others, extras in (
            (features.images_nd, features.texts_nd, features.hard_texts),
            (features.texts_nd, features.images_nd, features.hard_images),
        ):
            right = torch.exp(scale * torch.dot(anchors[i], others[i]))
            negatives, count = torch.zeros((), dtype=torch.float64), 0.0
            for j in range(n):
                if i == j or (features.equal is not None and features.equal[i, j]):
                    continue
                weight = 1.0 if features.negative_weights is None else float(features.negative_weights[i, j])
                negatives = negatives + weight * torch.exp(scale * torch.dot(anchors[i], others[j]))
                count += weight
            g = torch.maximum((negatives / count - tau_plus * right) / (1 - tau_plus), torch.exp(-scale))
            hard = torch.zeros((), dtype=torch.float64)
            for e in range(0 if extras is None else len(extras)):
                assert extras is not None
                weight = float(extras.weights_nm(anchors)[i, e])
                hard = hard + weight * torch.exp(scale * torch.dot(anchors[i], extras.embeddings_md[e]))
            own = own - torch.log(right / (right + count * g + hard))
        weight = 1.0 if features.weights_n is None else float(features.weights_n[i])
        total, weights = total + weight * own / 2, weights + weight
    return total / weights


@pytest.mark.parametrize("tau_plus", [0.0, 0.01, 0.1, 0.5])
def test_loss_and_gradients_equal_the_slow_transcription(tau_plus: float) -> None:
    batch, scale = busy_batch(), factor()
    assert_same_loss_and_gradients(
        debiased_info_nce(batch.features, scale, tau_plus=tau_plus),
        slow(batch.features, scale, tau_plus),
        (*batch.leaves, scale),
    )


def test_no_share_of_right_ones_is_info_nce() -> None:
    batch, scale = busy_batch(), factor()
    assert_same_loss_and_gradients(
        debiased_info_nce(batch.features, scale, tau_plus=0.0), info_nce(batch.features, scale), (*batch.leaves, scale)
    )


def test_embeddings_that_are_all_the_same_lose_the_logarithm_of_the_batch() -> None:
    vectors = torch.ones(8, 4, dtype=torch.float64) / 2
    loss = debiased_info_nce(of_one_process(vectors, vectors), 20.0, tau_plus=0.3)
    assert loss.item() == pytest.approx(math.log(8), abs=1e-12)


def test_negatives_never_count_less_than_the_least_they_can() -> None:
    eye = torch.eye(5, dtype=torch.float64)
    loss = debiased_info_nce(of_one_process(eye, eye), 4.0, tau_plus=0.1)  # 0.1 · e⁴ > 1: all would be taken off
    assert loss.item() == pytest.approx(math.log1p(4 * math.exp(-4) / math.exp(4)), abs=1e-12)


def test_the_more_are_right_the_less_the_loss() -> None:
    images = unit(6, 0).detach()
    features = of_one_process(images, torch.nn.functional.normalize(images + 0.3 * unit(6, 1).detach(), dim=1))
    losses = [debiased_info_nce(features, 5.0, tau_plus=share).item() for share in (0.0, 0.02, 0.05)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


def test_the_two_sides_are_interchangeable() -> None:
    images, texts = unit(6, 0), unit(6, 1)
    torch.testing.assert_close(
        debiased_info_nce(of_one_process(images, texts), 9.0, tau_plus=0.1),
        debiased_info_nce(of_one_process(texts, images), 9.0, tau_plus=0.1),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_scale_of_clip_overflows_nothing(dtype: torch.dtype) -> None:
    images, texts = (unit(6, seed).detach().to(dtype).requires_grad_() for seed in (0, 0))
    scale = torch.tensor(100.0, dtype=dtype, requires_grad=True)
    loss = debiased_info_nce(of_one_process(images, texts), scale, tau_plus=0.1)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in torch.autograd.grad(loss, (images, texts, scale)))


def test_gradients_are_finite_where_almost_all_is_taken_off() -> None:
    """What is left of the negatives is less than what fp32 tells from nothing."""
    vectors = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    images, texts, scale = vectors.clone().requires_grad_(), vectors.clone().requires_grad_(), torch.tensor(1e-7)
    loss = debiased_info_nce(of_one_process(images, texts), scale, tau_plus=math.exp(-2.2e-7))
    assert all(torch.isfinite(gradient).all() for gradient in torch.autograd.grad(loss, (images, texts)))


def test_a_perfect_model_loses_nothing_when_the_batch_holds_duplicates() -> None:
    batch = perfect_batch()
    assert debiased_info_nce(batch, 100.0, tau_plus=0.01).item() < 1e-12
    assert debiased_info_nce(dataclasses.replace(batch, equal=None), 100.0, tau_plus=0.01).item() > 0.4


def test_a_batch_of_equals_has_no_negatives_and_teaches_nothing() -> None:
    images, texts = unit(3, 0), unit(3, 1)
    everything = same(torch.zeros(3))
    loss = debiased_info_nce(of_one_process(images, texts, equal=everything), factor(), tau_plus=0.1)
    assert loss.item() == pytest.approx(0, abs=1e-15)
    assert all(gradient.abs().max() < 1e-15 for gradient in torch.autograd.grad(loss, (images, texts)))


def test_hard_negatives_stand_outside_the_correction() -> None:
    eye = torch.eye(5, dtype=torch.float64)
    hard = HardNegatives(eye[:1].clone(), torch.tensor([[1.0], [0], [0], [0], [0]], dtype=torch.float64))
    plain = debiased_info_nce(of_one_process(eye, eye), 50.0, tau_plus=0.1)
    loss = debiased_info_nce(of_one_process(eye, eye, hard_texts=hard), 50.0, tau_plus=0.1)
    assert (loss - plain).item() == pytest.approx(math.log(2) / 10, abs=1e-12)


@pytest.mark.parametrize("tau_plus", [-0.1, 1.0])
def test_a_share_that_is_none_is_refused(tau_plus: float) -> None:
    with pytest.raises(ValueError, match="tau_plus"):
        debiased_info_nce(of_one_process(unit(3, 0), unit(3, 1)), 1.0, tau_plus=tau_plus)
