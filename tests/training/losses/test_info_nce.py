from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.support.pair_features import assert_same_loss_and_gradients, busy_batch, same, unit
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures, of_one_process

N = 6


def slow(features: PairFeatures, scale: Tensor) -> Tensor:
    """The docstring's equation, term by term: -s_ii + log[ Σ_j m_ij exp s_ij + Σ_e w_ie exp s_ie ]."""
    n = len(features.images_nd)
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for i in range(n):
        own = torch.zeros((), dtype=torch.float64)
        for anchors, others, extras in (
            (features.images_nd, features.texts_nd, features.hard_texts),
            (features.texts_nd, features.images_nd, features.hard_images),
        ):
            denominator = torch.exp(scale * torch.dot(anchors[i], others[i]))
            for j in range(n):
                if i == j or (features.equal is not None and features.equal[i, j]):
                    continue
                weight = 1.0 if features.negative_weights is None else float(features.negative_weights[i, j])
                denominator = denominator + weight * torch.exp(scale * torch.dot(anchors[i], others[j]))
            for e in range(0 if extras is None else len(extras)):
                assert extras is not None
                weight = float(extras.weights_nm(anchors)[i, e])
                denominator = denominator + weight * torch.exp(scale * torch.dot(anchors[i], extras.embeddings_md[e]))
            own = own - scale * torch.dot(anchors[i], others[i]) + torch.log(denominator)
        weight = 1.0 if features.weights_n is None else float(features.weights_n[i])
        total, weights = total + weight * own / 2, weights + weight
    return total / weights


def gradients(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, leaves))


def test_plain_loss_and_gradients_equal_the_slow_transcription() -> None:
    image, text = unit(N, 0), unit(N, 1)
    scale = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    features = of_one_process(image, text)
    assert_same_loss_and_gradients(info_nce(features, scale), slow(features, scale), (image, text, scale))


def test_duplicates_and_weights_and_hard_negatives_equal_the_slow_transcription() -> None:
    batch = busy_batch()
    scale = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    assert_same_loss_and_gradients(info_nce(batch.features, scale), slow(batch.features, scale), (*batch.leaves, scale))


def test_gradients_pass_the_numerical_check() -> None:
    keys = torch.tensor([0, 0, 1, 2])
    extra = HardNegatives(unit(2, 5).detach(), torch.tensor([1.0, 0.5], dtype=torch.float64))
    image, text = unit(4, 3), unit(4, 4)
    assert torch.autograd.gradcheck(
        lambda i, t: info_nce(of_one_process(i, t, equal=same(keys), hard_texts=extra), 3.0), (image, text)
    )


def test_plain_case_equals_open_clip() -> None:
    from open_clip.loss import ClipLoss

    image, text = unit(16, 8, 32), unit(16, 9, 32)
    theirs = ClipLoss()(image, text, torch.tensor(14.3, dtype=torch.float64))
    torch.testing.assert_close(info_nce(of_one_process(image, text), 14.3), theirs, rtol=1e-12, atol=1e-12)


def test_constant_embeddings_lose_the_logarithm_of_the_batch() -> None:
    same = torch.ones(8, 4, dtype=torch.float64) / 2
    assert info_nce(of_one_process(same, same), 100.0).item() == pytest.approx(math.log(8), abs=1e-12)


def test_perfect_embeddings_lose_what_the_closed_form_says() -> None:
    eye = torch.eye(5, dtype=torch.float64)
    assert info_nce(of_one_process(eye, eye), 3.0).item() == pytest.approx(math.log(1 + 4 * math.exp(-3)), abs=1e-12)


def test_the_two_sides_are_interchangeable() -> None:
    image, text = unit(N, 0), unit(N, 1)
    torch.testing.assert_close(info_nce(of_one_process(image, text), 9.0), info_nce(of_one_process(text, image), 9.0))


def test_a_perfect_model_loses_nothing_when_the_batch_holds_duplicates() -> None:
    vectors = torch.eye(4, dtype=torch.float64)[[0, 1, 1, 2, 2, 2]]
    keys = torch.tensor([0, 1, 1, 2, 2, 2])
    assert info_nce(of_one_process(vectors, vectors), 100.0).item() > 0.5
    assert info_nce(of_one_process(vectors, vectors, equal=same(keys)), 100.0).item() < 1e-12


def test_a_duplicate_gets_no_gradient_from_its_twin() -> None:
    image = unit(2, 0)
    text = unit(2, 1)
    loss = info_nce(of_one_process(image, text, equal=same(torch.tensor([3, 3]))), 10.0)
    assert loss.item() == 0
    assert all((g == 0).all() for g in gradients(loss, image, text))


def test_a_weight_of_zero_is_as_if_the_extra_were_not_there() -> None:
    image, text = unit(N, 0), unit(N, 1)
    none = HardNegatives(unit(3, 2), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(
        info_nce(of_one_process(image, text, hard_texts=none), 9.0), info_nce(of_one_process(image, text), 9.0)
    )


def test_weights_by_anchor_confine_an_extra_to_its_own_anchor() -> None:
    image, text, extra = unit(N, 0), unit(N, 1), unit(N, 2)
    own = HardNegatives(extra, torch.eye(N, dtype=torch.float64))
    loss = info_nce(of_one_process(image, text, hard_texts=own), 9.0)
    (gradient,) = gradients(loss, extra)
    rows = 9.0 * image @ torch.cat([text, extra]).T
    expected = torch.stack(
        [torch.logsumexp(torch.cat([rows[i, :N], rows[i, N + i : N + i + 1]]), 0) - rows[i, i] for i in range(N)]
    ).mean()
    expected = 0.5 * (expected + torch.nn.functional.cross_entropy(9.0 * text @ image.T, torch.arange(N)))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, gradients(expected, extra)[0])


def test_hard_negatives_make_the_loss_larger() -> None:
    image, text = unit(N, 0), unit(N, 1)
    extra = HardNegatives(unit(3, 2))
    assert info_nce(of_one_process(image, text, hard_texts=extra), 9.0) > info_nce(of_one_process(image, text), 9.0)
    assert info_nce(of_one_process(image, text, hard_images=extra), 9.0) > info_nce(of_one_process(image, text), 9.0)


def test_a_batch_of_one_is_refused_unless_it_has_hard_negatives() -> None:
    image, text = unit(1, 0), unit(1, 1)
    with pytest.raises(ValueError, match="teaches nothing"):
        info_nce(of_one_process(image, text), 10.0)
    assert info_nce(of_one_process(image, text, hard_texts=HardNegatives(unit(2, 2))), 10.0).item() > 0


def test_towers_of_different_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        info_nce(of_one_process(unit(N, 0, 4), unit(N, 1, 5)), 10.0)
