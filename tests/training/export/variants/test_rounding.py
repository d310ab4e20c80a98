from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlens.training.export.variants.rounding import LARGEST, Rounded, round_weights


def correlated_inputs(rng: np.random.Generator, rows: int, width: int) -> NDArray[np.float64]:
    mixing = rng.standard_normal((width // 4, width))
    return rng.standard_normal((rows, width // 4)) @ mixing + 0.1 * rng.standard_normal((rows, width)) + 0.5


def moments(inputs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return inputs.mean(axis=0)[None], (inputs.T @ inputs / len(inputs))[None]


def values(rounded: Rounded) -> NDArray[np.float64]:
    return rounded.levels * rounded.steps.astype(np.float64)[:, None]


def test_outputs_change_less_than_by_rounding_to_the_nearest_and_their_mean_not_at_all() -> None:
    rng = np.random.default_rng(0)
    inputs = correlated_inputs(rng, 500, 64)
    weights = rng.standard_normal((32, 64))
    rounded = round_weights(weights, *moments(inputs))
    exact = inputs @ weights.T
    found = inputs @ values(rounded).T + rounded.shift
    steps = np.abs(weights).max(axis=1, keepdims=True) / LARGEST
    nearest = inputs @ (np.round(weights / steps) * steps).T
    assert ((found - exact) ** 2).mean() < 0.2 * ((nearest - exact) ** 2).mean()
    np.testing.assert_allclose(found.mean(axis=0), exact.mean(axis=0), atol=1e-9)


def compensated_slowly(
    weights: NDArray[np.float64], steps: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """GPTQ's eq. 2 and 3 as they stand: after each column its row and column leave the inverse."""
    left, done = weights.copy(), np.zeros_like(weights)
    waiting = list(np.argsort(-np.diagonal(covariance), kind="stable"))
    inverse = np.linalg.inv(covariance[np.ix_(waiting, waiting)])
    while waiting:
        column = waiting.pop(0)
        done[:, column] = np.clip(np.round(left[:, column] / steps), -LARGEST, LARGEST) * steps
        error = (left[:, column] - done[:, column]) / inverse[0, 0]
        left[:, waiting] -= np.outer(error, inverse[0, 1:])
        inverse = inverse[1:, 1:] - np.outer(inverse[1:, 0], inverse[0, 1:]) / inverse[0, 0]
    return done


@pytest.mark.parametrize("width", [24, 150])
def test_errors_are_taken_up_as_the_equations_say(width: int) -> None:
    rng = np.random.default_rng(5)
    inputs, weights = correlated_inputs(rng, 400, width), rng.standard_normal((12, width))
    mean, second = moments(inputs)
    rounded = round_weights(weights, mean, second)
    covariance = second[0] - np.outer(mean[0], mean[0])
    damped = covariance + 0.01 * np.trace(covariance) / width * np.eye(width)
    expected = compensated_slowly(weights, rounded.steps.astype(np.float64), damped)
    np.testing.assert_allclose(values(rounded), expected, atol=1e-6)


def test_inputs_that_never_vary_are_rounded_to_the_nearest() -> None:
    inputs = np.tile(np.linspace(300, 1000, 32), (400, 1))
    weights = np.random.default_rng(6).standard_normal((8, 32))
    rounded = round_weights(weights, *moments(inputs))
    steps = rounded.steps.astype(np.float64)[:, None]
    np.testing.assert_array_equal(rounded.levels, np.clip(np.round(weights / steps), -LARGEST, LARGEST))


def test_with_independent_inputs_each_weight_goes_to_its_nearest_level() -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((8, 16))
    rounded = round_weights(weights, np.zeros((1, 16)), np.eye(16)[None])
    steps = rounded.steps.astype(np.float64)[:, None]
    np.testing.assert_array_equal(rounded.levels, np.clip(np.round(weights / steps), -LARGEST, LARGEST))


def test_two_products_of_a_byte_and_a_level_fit_16_bits() -> None:
    rng = np.random.default_rng(2)
    inputs = correlated_inputs(rng, 300, 32)
    rounded = round_weights(rng.standard_normal((16, 32)) ** 3, *moments(inputs))
    assert np.abs(rounded.levels.astype(int)).max() <= LARGEST
    assert 2 * 255 * LARGEST < 2**15


def test_groups_are_rounded_as_if_each_were_a_layer_of_its_own() -> None:
    rng = np.random.default_rng(3)
    inputs = [correlated_inputs(rng, 200, 12) for _ in range(5)]
    weights = rng.standard_normal((10, 12))
    means, seconds = zip(*map(moments, inputs), strict=True)
    together = round_weights(weights, np.concatenate(means), np.concatenate(seconds))
    for group in range(5):
        alone = round_weights(weights[2 * group : 2 * group + 2], means[group], seconds[group])
        np.testing.assert_array_equal(together.levels[2 * group : 2 * group + 2], alone.levels)
        np.testing.assert_allclose(together.shift[2 * group : 2 * group + 2], alone.shift)


@pytest.mark.parametrize("wide", [False, True])
def test_silent_inputs_and_zero_weights_do_no_harm(wide: bool) -> None:
    rng = np.random.default_rng(4)
    inputs = correlated_inputs(rng, 100, 16)
    inputs[:, 3] = 0.0
    weights = rng.standard_normal((4, 16))
    weights[2] = 0.0
    mean, second = moments(inputs)
    rounded = round_weights(weights, mean, np.diagonal(second, axis1=1, axis2=2) if wide else second)
    assert np.isfinite(rounded.steps).all()
    assert (rounded.steps > 0).all()
    assert not rounded.levels[2].any()
