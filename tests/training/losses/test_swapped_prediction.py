from __future__ import annotations

import math

import pytest
import torch
from lightly.loss import SwaVLoss
from torch import Tensor

from twinlens.training.losses.sinkhorn import sinkhorn
from twinlens.training.losses.swapped_prediction import swapped_prediction

N, K = 6, 4


def leaves(count: int, seed: int = 0, n: int = N, k: int = K) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, k, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(count)]


def distributions(count: int, seed: int = 100) -> list[Tensor]:
    return [torch.softmax(2 * each.detach(), dim=1) for each in leaves(count, seed)]


def slow_swapped_prediction(scores: list[Tensor], codes: list[Tensor], temperature: float) -> Tensor:
    """Caron et al. 2020, eq. 2 and 6, term by term: codes of the first views, predictions from all others."""
    total = torch.zeros((), dtype=torch.float64)
    for i, code in enumerate(codes):
        for v, score in enumerate(scores):
            if v == i:
                continue
            for b in range(len(score)):
                denominator = sum(torch.exp(score[b, k] / temperature) for k in range(score.shape[1]))
                for k in range(score.shape[1]):
                    total = total - code[b, k] * torch.log(torch.exp(score[b, k] / temperature) / denominator)
    return total / (len(codes) * (len(scores) - 1) * len(scores[0]))


@pytest.mark.parametrize(("views", "coded"), [(2, 2), (5, 2), (3, 1), (3, 3)])
def test_loss_and_gradients_equal_the_slow_transcription(views: int, coded: int) -> None:
    scores, codes = leaves(views), distributions(coded)
    fast = swapped_prediction(scores, codes, temperature=0.3)
    slow = slow_swapped_prediction(scores, codes, 0.3)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    used = scores if coded > 1 else scores[1:]  # the only view with a code is predicted from by no one
    ours, theirs = torch.autograd.grad(fast, used), torch.autograd.grad(slow, used)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_view_never_predicts_its_own_code() -> None:
    scores = leaves(3)
    loss = swapped_prediction(scores, distributions(1), temperature=0.1)
    (gradient,) = torch.autograd.grad(loss, scores[:1])
    assert not gradient.any()


@pytest.mark.parametrize("local", [0, 3])
def test_loss_and_gradients_equal_lightlys(local: int) -> None:
    scores = leaves(2 + local, 3, n=16, k=8)
    codes = [sinkhorn(each) for each in scores[:2]]
    ours = swapped_prediction(scores, codes, temperature=0.1)
    theirs = SwaVLoss(temperature=0.1)(scores[:2], scores[2:]).squeeze()
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(torch.autograd.grad(ours, scores), torch.autograd.grad(theirs, scores))


def test_equal_scores_cost_the_log_of_the_number_of_prototypes() -> None:
    scores = [torch.full((N, K), 0.3)] * 2
    loss = swapped_prediction(scores, [torch.full((N, K), 1 / K)] * 2)
    assert float(loss) == pytest.approx(math.log(K), rel=1e-6)


def test_two_views_are_symmetric() -> None:
    (a, b), (p, q) = leaves(2), distributions(2)
    forth = swapped_prediction([a, b], [p, q])
    torch.testing.assert_close(forth, swapped_prediction([b, a], [q, p]))


def test_the_loss_is_least_where_predictions_equal_the_codes() -> None:
    code = distributions(1)[0]
    perfect = swapped_prediction([0.1 * code.log()] * 2, [code] * 2, temperature=0.1)
    entropy = torch.special.entr(code).sum(dim=1).mean()
    torch.testing.assert_close(perfect, entropy)


def test_half_precision_scores_are_compared_in_single() -> None:
    scores = [each.detach().to(torch.bfloat16) for each in leaves(2)]
    codes = [each.float() for each in distributions(2)]
    loss = swapped_prediction(scores, codes)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, swapped_prediction([each.float() for each in scores], codes))


@pytest.mark.parametrize(
    ("views", "coded", "temperature", "words"),
    [(1, 1, 0.1, "two views"), (2, 0, 0.1, "codes"), (2, 3, 0.1, "codes"), (2, 2, 0.0, "temperature")],
)
def test_views_and_codes_that_do_not_fit_are_refused(views: int, coded: int, temperature: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        swapped_prediction(leaves(views), distributions(coded), temperature=temperature)


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="alike"):
        swapped_prediction([*leaves(1), *leaves(1, n=3)], distributions(1))
