"""Moving the loud channels of an activation into the weights that read it.

One step for all channels of an activation must span the loudest. In trained transformers a few channels are ten times
as loud as the rest (28 against 1.8 behind the layer norms of MiniLM), so the others keep 4 bits. Dividing channel j by
s_j and multiplying the weights that read it by s_j changes nothing in real numbers and evens the channels out
(SmoothQuant, Xiao et al. 2023, eq. 3-4): s_j = max|x_j|^a / max|w_j|^(1-a).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.training.export.variants.observe import Moments
from twinlens.training.export.variants.rounding import LARGEST

_LEVELS = 255
_EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9)
# A division costs a pass over the activation: only where it cuts the expected error by a third.
_WORTH = 0.67
_TINY = 1e-6


def smoothing(weights: Sequence[NDArray[np.float64]], moments: Moments) -> NDArray[np.float64] | None:
    """The divisors of an activation's channels, shape (in,), or None where they gain little.

    Args:
        weights: The matrices (out, in) of all layers that read the activation.
        moments: Of the activation, with one group.
    """
    loudness = np.maximum(np.abs(moments.lowest[0]), np.abs(moments.highest[0])).astype(np.float64)
    reading = np.max([np.abs(matrix).max(axis=0) for matrix in weights], axis=0)
    best, least = None, _WORTH * _expected_error(weights, moments, np.ones_like(loudness))
    for exponent in _EXPONENTS:
        divisors = np.maximum(loudness, _TINY) ** exponent / np.maximum(reading, _TINY) ** (1 - exponent)
        divisors /= np.exp(np.log(divisors).mean())
        error = _expected_error(weights, moments, divisors)
        if error < least:
            best, least = divisors, error
    return best


def smoothed(moments: Moments, divisors: NDArray[np.float64]) -> Moments:
    """The moments of the divided activation."""
    wide = moments.second.ndim == 2
    second = moments.second / (divisors**2 if wide else divisors[:, None] * divisors[None, :])
    narrow = divisors.astype(np.float32)
    return Moments(moments.mean / divisors, second, moments.lowest / narrow, moments.highest / narrow, moments.rows)


def _expected_error(weights: Sequence[NDArray[np.float64]], moments: Moments, divisors: NDArray[np.float64]) -> float:
    """Expected squared error of the outputs, if every rounding is off by a uniform share of its step."""
    lowest, highest = (moments.lowest[0] / divisors).min(), (moments.highest[0] / divisors).max()
    step = (max(highest, 0.0) - min(lowest, 0.0)) / _LEVELS
    energy = moments.second[0] if moments.second.ndim == 2 else np.diagonal(moments.second[0])
    loud = float((energy / divisors**2).sum())
    error = 0.0
    for matrix in weights:
        scaled = matrix * divisors
        weight_steps = np.abs(scaled).max(axis=1) / LARGEST
        error += float(step**2 * (scaled**2).sum() + (weight_steps**2).sum() * loud) / 12
    return error
