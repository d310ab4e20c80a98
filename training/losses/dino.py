"""DINO: a student predicts its teacher's sharpened and centred distribution over learned dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from twinlens.training.losses.swapped_prediction import swapped_prediction


@torch.no_grad()
def teacher_distribution(scores_nk: Tensor, centre_k: Tensor, *, temperature: float) -> Tensor:
    """softmax((g_t(x) - c) / τ_t) (DINO, Caron et al. 2021, eq. 1 and section 3.1).

    Centring alone drives a run to the uniform distribution, sharpening (a low τ_t) alone to a single dimension;
    together they hold each other.

    Args:
        scores_nk: The teacher's output of one view, shape (n, k).
        centre_k: c, shape (k,); zeros: no centring.
        temperature: τ_t > 0, below the student's.

    Returns:
        Shape (n, k), in fp32 at least, without gradients.

    Raises:
        ValueError: if τ_t is not positive.
    """
    if temperature <= 0:
        raise ValueError(f"teacher temperature must be positive, found {temperature}")
    precise = torch.promote_types(scores_nk.dtype, torch.float32)
    return torch.softmax((scores_nk.to(precise) - centre_k.to(precise)) / temperature, dim=1)


def dino_loss(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    centre_k: Tensor,
    *,
    student_temperature: float = 0.1,
    teacher_temperature: float = 0.04,
) -> Tensor:
    """Cross-entropy of the student on every view with the teacher on every other full view (DINO, eq. 2 and 3).

    The mean over all pairs of different views; it is SwAV's swapped prediction with the teacher's distribution in the
    place of Sinkhorn's codes.

    Args:
        student: Outputs of all views, (n, k) each, the full views first.
        teacher: Outputs of the full views, (n, k) each; no gradient goes into them.
        centre_k: See `teacher_distribution`.
        student_temperature: τ_s > 0.
        teacher_temperature: τ_t > 0.

    Returns:
        The loss, a scalar, in fp32 at least.

    Raises:
        ValueError: as `swapped_prediction` and `teacher_distribution`.
    """
    targets = [teacher_distribution(each, centre_k, temperature=teacher_temperature) for each in teacher]
    return swapped_prediction(student, targets, temperature=student_temperature)
