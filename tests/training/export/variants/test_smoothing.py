from __future__ import annotations

import numpy as np

from twinlens.training.export.variants.observe import Moments
from twinlens.training.export.variants.smoothing import smoothed, smoothing


def moments_of(inputs: np.ndarray) -> Moments:
    return Moments(
        inputs.mean(axis=0)[None],
        (inputs.T @ inputs / len(inputs))[None],
        inputs.min(axis=0)[None].astype(np.float32),
        inputs.max(axis=0)[None].astype(np.float32),
        1.0,
    )


def error(inputs: np.ndarray, weights: np.ndarray, divisors: np.ndarray) -> float:
    """Mean squared error of the product, if the divided inputs are rounded to 255 steps between their ends."""
    divided = inputs / divisors
    low, high = divided.min(), divided.max()
    step = (high - low) / 255
    rounded = np.round((divided - low) / step) * step + low
    return float(((rounded @ (weights * divisors).T - inputs @ weights.T) ** 2).mean())


def test_loud_channels_are_evened_out_and_the_product_gets_closer() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((1000, 32))
    inputs[:, 5] *= 40.0
    weights = rng.standard_normal((16, 32))
    weights[:, 5] /= 40.0
    divisors = smoothing([weights], moments_of(inputs))
    assert divisors is not None
    assert divisors.argmax() == 5
    assert error(inputs, weights, divisors) < 0.05 * error(inputs, weights, np.ones(32))


def test_even_channels_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    inputs, weights = rng.standard_normal((1000, 32)), rng.standard_normal((16, 32))
    assert smoothing([weights], moments_of(inputs)) is None


def test_the_moments_of_the_divided_activation_are_those_of_its_rows() -> None:
    rng = np.random.default_rng(2)
    inputs, divisors = rng.standard_normal((50, 8)), rng.uniform(0.5, 4.0, 8)
    found, expected = smoothed(moments_of(inputs), divisors), moments_of(inputs / divisors)
    for name in ("mean", "second", "lowest", "highest"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5)
