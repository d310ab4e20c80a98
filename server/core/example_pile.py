"""Vectors of examples, collected page by page and sorted by label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.classify import MAX_LABELS
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.labels import quoted

MAX_KEPT_VALUES = 50_000_000
# Below this length the mean of unit vectors is rounding, not a direction.
_CANCELLED = 1e-5


class ExamplePile:
    """Sums a label's vectors, and keeps them all where that is asked for.

    Attributes:
        labels: The labels so far with their positions, in the order in which they came.
        count: How many vectors came.
    """

    def __init__(self, dimension: int, *, keep_vectors: bool) -> None:
        self.labels: dict[str, int] = {}
        self.count = 0
        self._dimension = dimension
        self._keep = keep_vectors
        self._sums = np.zeros((0, dimension))
        self._counts = np.zeros(0)
        self._pages: list[NDArray[np.float32]] = []
        self._owners: list[NDArray[np.intp]] = []

    def add(self, labels: Sequence[str], vectors_nd: NDArray[np.float32]) -> None:
        """Takes unit vectors, shape (n, d), with their labels.

        Raises:
            ServiceError: INVALID_ARGUMENT where it gets too large.
        """
        owners = np.array([self.labels.setdefault(label, len(self.labels)) for label in labels], dtype=np.intp)
        if len(self.labels) > MAX_LABELS:
            raise invalid_argument(f"the examples have more than {MAX_LABELS} different labels")
        self.count += len(owners)
        if self._keep and self.count * self._dimension > MAX_KEPT_VALUES:
            raise invalid_argument(
                f"more than {MAX_KEPT_VALUES // self._dimension} examples of dimension {self._dimension} are too many "
                "to compare each with; rule PROTOTYPE takes any number"
            )
        self._make_room()
        self._sum_up(owners, vectors_nd)
        if self._keep:
            self._pages.append(vectors_nd)
            self._owners.append(owners)

    def prototypes(self) -> NDArray[np.float32]:
        """The normalised mean of each label's vectors, shape (labels, d).

        Raises:
            ServiceError: INVALID_ARGUMENT naming a label whose vectors cancel each other out.
        """
        count = len(self.labels)
        means = self._sums[:count] / self._counts[:count, None]
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        for label, norm in zip(self.labels, norms[:, 0], strict=True):
            if norm <= _CANCELLED:
                raise invalid_argument(f"the examples of label {quoted(label)} cancel each other out")
        return np.asarray(means / norms, dtype=np.float32)

    def grouped(self) -> tuple[NDArray[np.float32] | None, NDArray[np.intp]]:
        """The vectors by label, shape (n, d), in a label in the order in which they came; and where each label begins.

        The vectors are None where they were not kept.
        """
        starts = np.concatenate([[0], np.cumsum(self._counts[: len(self.labels)])])[:-1].astype(np.intp)
        if not self._keep:
            return None, starts
        order = np.argsort(np.concatenate(self._owners), kind="stable")
        return np.concatenate(self._pages)[order], starts

    def _sum_up(self, owners: NDArray[np.intp], vectors_nd: NDArray[np.float32]) -> None:
        if not len(owners):
            return
        order = np.argsort(owners, kind="stable")  # np.add.at needs no order, but takes ten times as long
        found, starts, counts = np.unique(owners[order], return_index=True, return_counts=True)
        self._sums[found] += np.add.reduceat(vectors_nd[order], starts, axis=0, dtype=np.float64)
        self._counts[found] += counts

    def _make_room(self) -> None:
        room = len(self._sums)
        if room < len(self.labels):
            more = max(len(self.labels), 2 * room) - room
            self._sums = np.concatenate([self._sums, np.zeros((more, self._dimension))])
            self._counts = np.concatenate([self._counts, np.zeros(more)])
