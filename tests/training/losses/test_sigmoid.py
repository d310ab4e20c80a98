from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tests.support.pair_features import assert_same_loss_and_gradients, busy_batch, perfect_batch, unit
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures, of_one_process
from twinlens.training.losses.sigmoid import STARTING_BIAS, STARTING_LOG_SCALE, sigmoid_loss


def numbers() -> tuple[Tensor, Tensor]:
    return (
        torch.tensor(6.0, dtype=torch.float64, requires_grad=True),
        torch.tensor(-2.0, dtype=torch.float64, requires_grad=True),
    )


def slow(features: PairFeatures, scale: Tensor, bias: Tensor) -> Tensor:
    """The docstring's equation, comparison by comparison."""
    images, texts, n = features.images_nd, features.texts_nd, len(features.images_nd)
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for i in range(n):
        own = torch.zeros((), dtype=torch.float64)
        for j in range(n):
            if i != j and features.equal is not None and features.equal[i, j]:
                continue
            weight = 1.0 if i == j or features.negative_weights is None else float(features.negative_weights[i, j])
            z = 1.0 if i == j else -1.0
            own = own - weight * torch.log(1 / (1 + torch.exp(-z * (scale * torch.dot(images[i], texts[j]) + bias))))
        for anchor, extras in ((images[i], features.hard_texts), (texts[i], features.hard_images)):
            for e in range(0 if extras is None else len(extras)):
                assert extras is not None
                weight = float(extras.weights_nm(images)[i, e])
                wrong = scale * torch.dot(anchor, extras.embeddings_md[e]) + bias
                own = own - weight * torch.log(1 / (1 + torch.exp(wrong)))
        weight = 1.0 if features.weights_n is None else float(features.weights_n[i])
        total, weights = total + weight * own, weights + weight
    return total / weights


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 100])
def test_loss_and_gradients_equal_the_slow_transcription(chunk_size: int) -> None:
    batch, (scale, bias) = busy_batch(), numbers()
    assert_same_loss_and_gradients(
        sigmoid_loss(batch.features, scale, bias, chunk_size=chunk_size),
        slow(batch.features, scale, bias),
        (*batch.leaves, scale, bias),
    )


def test_the_plain_case_equals_open_clip() -> None:
    from open_clip.loss import SigLipLoss

    images, texts = unit(16, 8, 32), unit(16, 9, 32)
    scale, bias = numbers()
    ours = sigmoid_loss(of_one_process(images, texts), scale, bias, chunk_size=5)
    theirs = SigLipLoss()(images, texts, scale, bias)
    assert_same_loss_and_gradients(ours, theirs, (images, texts, scale, bias))


def test_gradients_pass_the_numerical_check() -> None:
    scale, bias = numbers()
    extra = HardNegatives(unit(2, 5).detach(), torch.tensor([1.0, 0.5], dtype=torch.float64))
    assert torch.autograd.gradcheck(
        lambda i, t, s, b: sigmoid_loss(of_one_process(i, t, hard_texts=extra), s, b, chunk_size=3),
        (unit(4, 3), unit(4, 4), scale, bias),
    )


def test_orthogonal_pairs_lose_what_the_closed_form_says() -> None:
    eye = torch.eye(5, dtype=torch.float64)
    loss = sigmoid_loss(of_one_process(eye, eye), 10.0, -4.0)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-6)) + 4 * math.log1p(math.exp(-4)), abs=1e-12)


def test_a_model_starts_by_taking_every_comparison_for_wrong() -> None:
    """What the bias is for: at the start only the n positives cost much, not the n (n - 1) negatives (§3.2)."""
    images, texts = unit(64, 0, 256), unit(64, 1, 256)  # nearly orthogonal
    loss = sigmoid_loss(of_one_process(images, texts), math.exp(STARTING_LOG_SCALE), STARTING_BIAS)
    assert loss.item() == pytest.approx(10.0, abs=0.5)


def test_the_two_sides_are_interchangeable() -> None:
    images, texts = unit(6, 0), unit(6, 1)
    torch.testing.assert_close(
        sigmoid_loss(of_one_process(images, texts), 9.0, -3.0), sigmoid_loss(of_one_process(texts, images), 9.0, -3.0)
    )


def test_a_perfect_model_loses_nothing_when_the_batch_holds_duplicates() -> None:
    batch = perfect_batch()
    assert sigmoid_loss(batch, 100.0, -50.0).item() < 1e-12
    assert sigmoid_loss(dataclasses.replace(batch, equal=None), 100.0, -50.0).item() > 1


def test_a_weight_of_zero_is_as_if_the_extra_were_not_there() -> None:
    images, texts = unit(6, 0), unit(6, 1)
    none = HardNegatives(unit(3, 2), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(
        sigmoid_loss(of_one_process(images, texts, hard_texts=none), 9.0, -3.0),
        sigmoid_loss(of_one_process(images, texts), 9.0, -3.0),
    )


def test_no_tensor_is_larger_than_a_chunk_of_comparisons() -> None:
    """Memory O(n · chunk), on the way back too: the largest that any operation gives is (n, chunk)."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                self.elements = max(self.elements, result.numel())
            return result

    n, chunk_size = 96, 8
    images, texts, extras = unit(n, 0, 4), unit(n, 1, 4), unit(n, 2, 4)
    scale, bias = numbers()
    with Largest() as largest:  # type: ignore[no-untyped-call]
        features = of_one_process(images, texts, hard_texts=HardNegatives(extras))
        torch.autograd.backward(sigmoid_loss(features, scale, bias, chunk_size=chunk_size))
    assert images.grad is not None
    assert largest.elements == n * chunk_size


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk_size must be positive"):
        sigmoid_loss(of_one_process(unit(2, 0), unit(2, 1)), 1.0, 0.0, chunk_size=0)
