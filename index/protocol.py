"""What a vector engine must do. `faiss` is the embedded default; others fit in behind the same five methods."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]


class VectorIndex(Protocol):
    """Unit vectors by integer key, searched by cosine. All methods may be called from any thread."""

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Adds vectors, shape (n, d), or replaces those of keys already there."""

    def delete(self, keys: Keys) -> None:
        """Removes keys; unknown ones are ignored."""

    def search(
        self, queries: Vectors, top_k: int, *, exact: bool = False, among: Keys | None = None
    ) -> tuple[Vectors, Keys]:
        """Returns scores and keys, both (q, found), best first; ties by lower key.

        Args:
            queries: Unit vectors, shape (q, d).
            top_k: How many at most, from 1.
            exact: Do without approximation.
            among: Ascending keys, no two alike: only these may be found; None: all. Those not held are ignored.

        Returns:
            `found` is `top_k`, or how many vectors may be found if these are fewer: never less, whatever the engine.
        """

    def __len__(self) -> int:
        """How many vectors it holds."""

    def close(self) -> None:
        """Frees memory and files; no method may be called afterwards."""
