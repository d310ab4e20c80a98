from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from tests.support.pair_features import assert_same_loss_and_gradients, busy_batch, perfect_batch, unit
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures, of_one_process
from twinlens.training.losses.ranking import ranking_loss


def slow(features: PairFeatures, margin: float) -> Tensor:
    """The docstring's equation, comparison by comparison."""
    n = len(features.images_nd)
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for i in range(n):
        own = torch.zeros((), dtype=torch.float64)
        for anchors, others, extras in (
            (features.images_nd, features.texts_nd, features.hard_texts),
            (features.texts_nd, features.images_nd, features.hard_images),
        ):
            right = torch.dot(anchors[i], others[i])
            for j in range(n):
                if i == j or (features.equal is not None and features.equal[i, j]):
                    continue
                weight = 1.0 if features.negative_weights is None else float(features.negative_weights[i, j])
                own = own + weight * torch.clamp(margin - right + torch.dot(anchors[i], others[j]), min=0)
            for e in range(0 if extras is None else len(extras)):
                assert extras is not None
                weight = float(extras.weights_nm(anchors)[i, e])
                own = own + weight * torch.clamp(margin - right + torch.dot(anchors[i], extras.embeddings_md[e]), min=0)
        weight = 1.0 if features.weights_n is None else float(features.weights_n[i])
        total, weights = total + weight * own / 2, weights + weight
    return total / weights


@pytest.mark.parametrize("margin", [0.1, 0.5])
def test_loss_and_gradients_equal_the_slow_transcription(margin: float) -> None:
    batch = busy_batch()
    assert_same_loss_and_gradients(
        ranking_loss(batch.features, margin=margin), slow(batch.features, margin), batch.leaves
    )


def test_embeddings_that_are_all_the_same_lose_the_margin_for_each_negative() -> None:
    vectors = torch.ones(8, 4, dtype=torch.float64) / 2
    assert ranking_loss(of_one_process(vectors, vectors), margin=0.1).item() == pytest.approx(0.7, abs=1e-12)


def test_what_is_right_by_the_margin_teaches_nothing() -> None:
    eye = torch.eye(5, dtype=torch.float64, requires_grad=True)
    loss = ranking_loss(of_one_process(eye, eye), margin=0.5)
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, eye)
    assert not gradient.any()


def test_the_two_sides_are_interchangeable() -> None:
    images, texts = unit(6, 0), unit(6, 1)
    torch.testing.assert_close(ranking_loss(of_one_process(images, texts)), ranking_loss(of_one_process(texts, images)))


def test_a_perfect_model_loses_nothing_when_the_batch_holds_duplicates() -> None:
    batch = perfect_batch()
    assert ranking_loss(batch).item() == 0
    assert ranking_loss(dataclasses.replace(batch, equal=None)).item() > 0.1


def test_a_weight_of_zero_is_as_if_the_extra_were_not_there() -> None:
    images, texts = unit(6, 0), unit(6, 1)
    none = HardNegatives(unit(3, 2), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(
        ranking_loss(of_one_process(images, texts, hard_images=none)), ranking_loss(of_one_process(images, texts))
    )


def test_no_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="margin must be positive"):
        ranking_loss(of_one_process(unit(3, 0), unit(3, 1)), margin=0)
