"""All vectors of a modality in a file without a name, to be compared without holding them in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError
from twinlens.index.protocol import Keys, Vectors

_CHUNK = 4096


class VectorFile:
    """Vectors by the order in which they were added; it vanishes when the block it is used in ends."""

    def __init__(self, folder: Path, dimension: int, name: str) -> None:
        """Makes an empty one.

        Args:
            folder: Where it takes its room.
            dimension: Length of the vectors.
            name: What to call the collection in errors.

        Raises:
            CollectionError: the disk is full or read-only.
        """
        self._dimension = dimension
        self._name = name
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - `__exit__` closes it
        except OSError as error:
            raise self._refused(error) from error
        self._keys: list[Keys] = []
        self._hashes: list[NDArray[np.uint64]] = []
        # A sum of products with random numbers; what has one sum is compared before it counts as equal.
        self._factors = np.random.default_rng(0).integers(1, 2**64 - 1, size=dimension, dtype=np.uint64)

    def __enter__(self) -> Self:
        """Opens the block that it lives in."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Frees the room."""
        self._file.close()

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Appends vectors, shape (n, d).

        Raises:
            CollectionError: the disk is full.
        """
        plain = np.ascontiguousarray(vectors, dtype=np.float32)
        try:
            self._file.write(plain.tobytes())
            self._file.flush()
        except OSError as error:
            raise self._refused(error) from error
        self._keys.append(keys)
        self._hashes.append((plain.view(np.uint32).astype(np.uint64) * self._factors).sum(axis=1, dtype=np.uint64))

    def keys(self) -> Keys:
        """The keys of all, shape (n,)."""
        return np.concatenate(self._keys) if self._keys else np.empty(0, dtype=np.int64)

    def vectors(self) -> Vectors:
        """All of them, shape (n, d), mapped and not in memory."""
        count = sum(map(len, self._keys))
        if not count:
            return np.empty((0, self._dimension), dtype=np.float32)
        return np.memmap(self._file, dtype=np.float32, mode="r", shape=(count, self._dimension))

    def copies(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Goes through vectors that equal an earlier one: their places, and the places of the first such."""
        vectors = self.vectors()
        if not len(vectors):
            return
        _, first, which = np.unique(np.concatenate(self._hashes), return_index=True, return_inverse=True)
        earlier = first[which]
        later = np.flatnonzero(earlier != np.arange(len(vectors)))
        for start in range(0, len(later), _CHUNK):
            places = later[start : start + _CHUNK]
            equal = (vectors[places] == vectors[earlier[places]]).all(axis=1)
            yield places[equal], earlier[places][equal]

    def _refused(self, error: OSError) -> CollectionError:
        reason = (error.strerror or "input/output error").lower()
        return CollectionError(f"{self._name}: cannot write a temporary file of its vectors: {reason}")
