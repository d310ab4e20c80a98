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

    def search(self, queries: Vectors, top_k: int, *, exact: bool = False) -> tuple[Vectors, Keys]:
        """Returns scores and keys, both (q, min(top_k, len)), best first; ties by lower key."""

    def __len__(self) -> int:
        """How many vectors it holds."""

    def close(self) -> None:
        """Frees memory and files; no method may be called afterwards."""
