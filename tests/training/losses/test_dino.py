from __future__ import annotations

import pytest
import torch
from lightly.loss import DINOLoss
from torch import Tensor

from twinlens.training.losses.dino import dino_loss, teacher_distribution

N, K = 5, 6


def outputs(count: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [0.5 * torch.randn(N, K, generator=generator, dtype=torch.float64) for _ in range(count)]


def students(count: int) -> list[Tensor]:
    return [each.requires_grad_() for each in outputs(count, 0)]


def slow_dino(student: list[Tensor], teacher: list[Tensor], centre: Tensor, tau_s: float, tau_t: float) -> Tensor:
    """Caron et al. 2021, eq. 1 to 3 and algorithm 1, term by term."""

    def softmax(row: Tensor, tau: float) -> list[Tensor]:
        exponents = [torch.exp(value / tau) for value in row]
        return [each / sum(exponents) for each in exponents]

    total, terms = torch.zeros((), dtype=torch.float64), 0
    for i, target in enumerate(teacher):
        for v, guess in enumerate(student):
            if v == i:
                continue
            terms += 1
            for b in range(N):
                p_t, p_s = softmax(target[b] - centre, tau_t), softmax(guess[b], tau_s)
                total = total - sum(a.detach() * torch.log(c) for a, c in zip(p_t, p_s, strict=True)) / N
    return total / terms


@pytest.mark.parametrize("views", [2, 5])
def test_loss_and_gradients_equal_the_slow_transcription(views: int) -> None:
    student, teacher, centre = students(views), outputs(2, 1), outputs(1, 2)[0][0]
    fast = dino_loss(student, teacher, centre, student_temperature=0.2, teacher_temperature=0.07)
    slow = slow_dino(student, teacher, centre, 0.2, 0.07)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    ours, theirs = torch.autograd.grad(fast, student), torch.autograd.grad(slow, student)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("views", [2, 6])
def test_loss_and_gradients_equal_lightlys(views: int) -> None:
    student, teacher = students(views), outputs(2, 1)
    reference = DINOLoss(K, teacher_temp=0.0625, student_temp=0.125).double()
    theirs = reference(teacher, student)
    # Temperatures that float32 holds exactly: lightly keeps them in it.
    zeros = torch.zeros(K, dtype=torch.float64)
    ours = dino_loss(student, teacher, zeros, student_temperature=0.125, teacher_temperature=0.0625)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(torch.autograd.grad(ours, student), torch.autograd.grad(theirs, student))


def test_no_gradient_enters_the_teacher() -> None:
    teacher = [each.requires_grad_() for each in outputs(2, 1)]
    loss = dino_loss(students(2), teacher, torch.zeros(K))
    assert not any(each is not None for each in torch.autograd.grad(loss, teacher, allow_unused=True))


def test_a_low_temperature_sharpens_and_the_centre_is_subtracted() -> None:
    scores = torch.tensor([[0.2, 0.1, 0.0]])
    sharp = teacher_distribution(scores, torch.zeros(3), temperature=0.01)
    assert float(sharp[0, 0]) > 0.999
    centred = teacher_distribution(scores, scores[0], temperature=0.01)
    torch.testing.assert_close(centred, torch.full((1, 3), 1 / 3))


def test_what_all_outputs_share_changes_nothing() -> None:
    student, teacher, centre = students(2), outputs(2, 1), outputs(1, 2)[0][0]
    shifted = dino_loss([each + 3 for each in student], [each - 1 for each in teacher], centre + 7)
    torch.testing.assert_close(shifted, dino_loss(student, teacher, centre))


def test_temperatures_must_be_positive() -> None:
    with pytest.raises(ValueError, match="teacher temperature"):
        dino_loss(students(2), outputs(2, 1), torch.zeros(K), teacher_temperature=0.0)
    with pytest.raises(ValueError, match="temperature"):
        dino_loss(students(2), outputs(2, 1), torch.zeros(K), student_temperature=0.0)
