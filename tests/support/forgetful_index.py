"""An engine that misses what matters most."""

from __future__ import annotations

from twinlens.index.flat import FlatIndex
from twinlens.index.protocol import Keys, Vectors


class ForgetfulIndex(FlatIndex):
    """Misses the nearest of every search that need not be exact."""

    def search(
        self, queries: Vectors, top_k: int, *, exact: bool = False, among: Keys | None = None
    ) -> tuple[Vectors, Keys]:
        """As `FlatIndex`, without the first."""
        scores, keys = super().search(queries, top_k + (not exact), among=among)
        return (scores, keys) if exact else (scores[:, 1:], keys[:, 1:])
