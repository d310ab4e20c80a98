"""What counts as a vector: finite, not zero, of the right dimension; kept at length one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinlens.index.errors import InvalidVector


def unit_vectors(array: ArrayLike, dimension: int, *, what: str = "vector") -> NDArray[np.float32]:
    """Checks vectors and scales each to length one.

    Args:
        array: Real numbers, shape (n, d).
        dimension: The d that is wanted.
        what: What to call a vector in an error; a row number follows it when there are several.

    Returns:
        New float32 array, shape (n, d), C order. Tiny and huge vectors keep their direction.

    Raises:
        InvalidVector: another shape or dimension (both are named), not numbers, not finite, or a vector of zeros.
    """
    try:
        given: NDArray[Any] = np.asarray(array)
    except ValueError as error:  # ragged lists
        raise InvalidVector(f"{what}: the rows have different lengths") from error
    if given.ndim != 2:
        raise InvalidVector(f"{what}: expected the shape (n, {dimension}), got {given.shape}")
    if given.shape[1] != dimension:
        raise InvalidVector(f"{what} has dimension {given.shape[1]}, but {dimension} is wanted here")
    if given.dtype.kind not in "fiu":
        raise InvalidVector(f"{what}: expected real numbers, got {given.dtype}")
    wide = given.astype(np.float64)
    finite = np.asarray(np.isfinite(wide).all(axis=1))
    if not finite.all():
        raise InvalidVector(f"{_name(what, finite)} has values that are not finite (NaN or infinity)")
    largest = np.abs(wide).max(axis=1, keepdims=True)
    nonzero = largest[:, 0] > 0
    if not nonzero.all():
        raise InvalidVector(f"{_name(what, nonzero)} is all zeros, which has no direction")
    wide /= largest  # squares can neither overflow nor vanish now
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return np.ascontiguousarray(wide, dtype=np.float32)


def _name(what: str, good: NDArray[Any]) -> str:
    """Says which row is meant, where there are several."""
    return what if len(good) == 1 else f"{what} {int(np.argmin(good))}"
