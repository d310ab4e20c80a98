"""Rounding weights to int8 so that what comes out changes least, not the weights themselves.

Rounding every weight to the nearest step is what plain quantisation does. On trained weights it moved single vectors of
the starter's image tower to a cosine of 0.85, though the weights were off by 0.4 % only. Two things mend that:

- Error compensation (GPTQ, Frantar et al. 2022, eq. 2-3, after Hassibi & Stork 1993): weights are rounded one column
  after the other, and the columns still to come take up the error as far as the inputs are correlated.
- Bias correction (Nagel et al. 2019, section 4.2): what rounding shifts the mean output by goes into the bias. As the
  bias takes the mean, the weights only have to care for the covariance of the inputs.

Weights are given 7 bits. CPUs without VNNI add two products of an unsigned and a signed byte in 16 bits and *saturate*:
2 x 255 x 127 does not fit, 2 x 255 x 63 does. So an int8 file gives the same vectors on every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST = 63
# Of the mean diagonal, added to it: keeps the covariance of few or constant inputs invertible.
_DAMPING = 0.01
# Of the mean second moment, likewise: where inputs do not vary, the rounding errors of float64 are left.
_FLOOR = 1e-9
# How far the step is shrunk below what the largest weight wants, at most.
_SMALLEST_STEP = 0.6
_STEPS = 17
_BLOCK = 64
# Beyond this many inputs the covariance no longer pays its memory: 144 MB each in float32.
LARGEST_COVARIANCE = 6144


@dataclass(frozen=True)
class Rounded:
    """Rounded weights of a layer.

    Attributes:
        levels: int8 from -63 to 63, shape (out, in).
        steps: float32 > 0, shape (out,): the weights are levels x steps.
        shift: What to add to the bias, float64, shape (out,).
    """

    levels: NDArray[np.int8]
    steps: NDArray[np.float32]
    shift: NDArray[np.float64]


def round_weights(weights: NDArray[np.float64], mean: NDArray[np.float64], second: NDArray[np.float64]) -> Rounded:
    """Rounds a layer's weights for the inputs that it sees.

    Args:
        weights: Shape (out, in of a group); rows of one group lie together.
        mean: Mean input of each group, shape (groups, in).
        second: Second moments E[x x'], shape (groups, in, in), or their diagonal, shape (groups, in): then each weight
            is rounded by itself.
    """
    groups, count = mean.shape
    grouped = weights.reshape(groups, -1, count)
    if second.ndim == 3:
        covariance = second - mean[:, :, None] * mean[:, None, :] + _floor(second)
        steps = _best_steps(grouped, np.diagonal(covariance, axis1=1, axis2=2))
        values = _compensated(grouped, steps, covariance)
    else:
        steps = _best_steps(grouped, second - mean**2)
        values = _nearest(grouped, steps[..., None])
    shift = np.einsum("grk,gk->gr", grouped - values, mean).reshape(-1)
    levels = np.round(values / steps[..., None]).astype(np.int8).reshape(weights.shape)
    return Rounded(levels, steps.reshape(-1).astype(np.float32), shift)


def _floor(second: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a variance may be off by, as diagonals, shape (groups, in, in)."""
    count = second.shape[-1]
    floor: NDArray[np.float64] = np.eye(count) * (_FLOOR * np.trace(second, axis1=1, axis2=2) / count)[:, None, None]
    return floor


def _nearest(weights: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    rounded: NDArray[np.float64] = np.clip(np.round(weights / steps), -LARGEST, LARGEST) * steps
    return rounded


def _best_steps(weights: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row, shape (groups, rows), the step with the least error, weighted by how much each input varies."""
    full = np.abs(weights).max(axis=-1) / LARGEST
    full = np.where(full > 0, full, 1.0)
    best, least = full.copy(), np.full(full.shape, np.inf)
    # From the largest, which clips nothing: where inputs are silent, all steps have the same error.
    for factor in np.linspace(1.0, _SMALLEST_STEP, _STEPS):
        # As float32 will store it, so that levels and steps agree.
        steps = (full * factor).astype(np.float32).astype(np.float64)
        error = np.einsum("grk,gk->gr", (_nearest(weights, steps[..., None]) - weights) ** 2, np.maximum(variance, 0.0))
        better = error < least
        best[better], least[better] = steps[better], error[better]
    return best


def _compensated(
    weights: NDArray[np.float64], steps: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """GPTQ, column by column in order of falling variance, in blocks so that most of the work is matrix products.

    All arrays have the groups in front: weights (g, rows, in), steps (g, rows), covariance (g, in, in).
    """
    count = weights.shape[-1]
    order = np.argsort(-np.diagonal(covariance, axis1=1, axis2=2), axis=1, kind="stable")
    damping = _DAMPING * np.trace(covariance, axis1=1, axis2=2) / count + 1e-12
    damped = np.take_along_axis(np.take_along_axis(covariance, order[:, :, None], 1), order[:, None, :], 2)
    damped = damped + np.eye(count) * damping[:, None, None]
    # Upper Cholesky factor of the inverse: its row j says how the error of column j spreads over the later ones. It is
    # the inverse of U in damped = U U', which is the Cholesky factor of the damped covariance read backwards.
    spread = _upper_inverse(np.linalg.cholesky(damped[:, ::-1, ::-1])[:, ::-1, ::-1])
    left = np.take_along_axis(weights, order[:, None, :], 2)
    done = np.empty_like(left)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        errors = np.empty((*left.shape[:2], end - start))
        for j in range(start, end):
            done[:, :, j] = _nearest(left[:, :, j], steps)
            errors[:, :, j - start] = (left[:, :, j] - done[:, :, j]) / spread[:, None, j, j]
            left[:, :, j + 1 : end] -= errors[:, :, j - start, None] * spread[:, None, j, j + 1 : end]
        left[:, :, end:] -= errors @ spread[:, start:end, end:]
    restored = np.empty_like(done)
    np.put_along_axis(restored, np.broadcast_to(order[:, None, :], done.shape), done, 2)
    return restored


def _upper_inverse(upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverses of upper triangular matrices, shape (g, n, n), by halves: a quarter of the work of a general inverse."""
    count = upper.shape[-1]
    if count <= _BLOCK:
        small: NDArray[np.float64] = np.triu(np.linalg.inv(upper))
        return small
    half = count // 2
    inverse = np.zeros_like(upper)
    inverse[:, :half, :half] = _upper_inverse(upper[:, :half, :half])
    inverse[:, half:, half:] = _upper_inverse(upper[:, half:, half:])
    inverse[:, :half, half:] = -(inverse[:, :half, :half] @ upper[:, :half, half:] @ inverse[:, half:, half:])
    return inverse
