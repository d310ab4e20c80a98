from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from twinlens.index.errors import InvalidVector
from twinlens.index.vectors import unit_vectors


@settings(derandomize=True, max_examples=100)
@given(arrays(np.float64, (3, 5), elements=st.floats(-1e300, 1e300).filter(lambda x: x == 0 or abs(x) > 1e-300)))
def test_vectors_keep_their_direction_and_get_length_one(array: np.ndarray) -> None:
    array[:, 0] += (np.abs(array).max(axis=1) == 0).astype(float)
    units = unit_vectors(array, 5)
    assert units.dtype == np.float32
    assert units.flags["C_CONTIGUOUS"]
    np.testing.assert_allclose(np.linalg.norm(units.astype(np.float64), axis=1), 1, atol=1e-6)
    largest = np.abs(array).argmax(axis=1)
    rows = np.arange(3)
    np.testing.assert_array_equal(np.sign(units[rows, largest]), np.sign(array[rows, largest]))


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_tiny_and_huge_vectors_are_as_good_as_others(scale: float) -> None:
    np.testing.assert_allclose(unit_vectors(np.array([[3.0, 4.0]]) * scale, 2), [[0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint8])
def test_any_real_number_type_will_do(dtype: type) -> None:
    np.testing.assert_allclose(unit_vectors(np.array([[3, 4]], dtype=dtype), 2), [[0.6, 0.8]], rtol=1e-6)


def test_the_given_array_is_left_alone() -> None:
    given_array = np.array([[3.0, 4.0]])
    unit_vectors(given_array, 2)
    np.testing.assert_array_equal(given_array, [[3.0, 4.0]])


def test_no_vectors_are_fine() -> None:
    assert unit_vectors(np.empty((0, 3)), 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3)), "query 0 is all zeros"),
        ([[1, 0, 0], [0, np.nan, 0]], "query 1 has values that are not finite"),
        ([[1, 0, 0], [0, np.inf, 0]], "query 1 has values that are not finite"),
        ([[0, -np.inf, 0]], "query has values that are not finite"),
        ([[1.0, 2.0]], "query has dimension 2, but 3 is wanted"),
        ([1.0, 2.0, 3.0], r"expected the shape \(n, 3\), got \(3,\)"),
        (1.0, r"expected the shape \(n, 3\), got \(\)"),
        ([[1.0, 2.0, 3.0], [1.0]], "different lengths"),
        ([["a", "b", "c"]], "expected real numbers"),
        ([[1j, 0, 0]], "expected real numbers"),
        ([[True, False, True]], "expected real numbers, got bool"),
        ([[None, None, None]], "expected real numbers, got object"),
    ],
)
def test_what_is_no_vector_is_refused_and_named(array: Any, message: str) -> None:
    with pytest.raises(InvalidVector, match=message):
        unit_vectors(array, 3, what="query")
