"""Vectors that stay in their file and are read through the page cache."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from twinlens.index.protocol import Vectors


def map_vectors(path: Path, count: int, dimension: int) -> Vectors:
    """The vectors of a file without header, float32 in C order; its size must fit.

    Returns:
        Shape (n, d), read-only. The mapping goes with the last reference to it, and outlives the file's name.
    """
    if count == 0:  # nothing can be mapped of an empty file
        return np.empty((0, dimension), dtype=np.float32)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), count * dimension * 4, access=mmap.ACCESS_READ)
    matrix: Vectors = np.frombuffer(mapped, dtype="<f4").reshape(count, dimension)
    return matrix
