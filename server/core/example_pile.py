"""Vectors of examples, collected page by page, and what pictures are compared with in the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.classify import MAX_LABELS
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.labels import directions

MAX_KEPT_VALUES = 50_000_000


class ExamplePile(ABC):
    """Takes vectors with their labels.

    Attributes:
        labels: The labels so far with their positions, in the order in which they came.
        count: How many vectors came.
    """

    def __init__(self, dimension: int) -> None:
        self.labels: dict[str, int] = {}
        self.count = 0
        self._dimension = dimension

    def add(self, labels: Sequence[str], vectors_nd: NDArray[np.float32]) -> None:
        """Takes unit vectors, shape (n, d), with their labels.

        Raises:
            ServiceError: INVALID_ARGUMENT where it gets too large.
        """
        if not labels:
            return
        owners = np.array([self.labels.setdefault(label, len(self.labels)) for label in labels], dtype=np.intp)
        if len(self.labels) > MAX_LABELS:
            raise invalid_argument(f"the examples have more than {MAX_LABELS} different labels")
        self.count += len(owners)
        self._take(owners, vectors_nd)

    @abstractmethod
    def targets(self) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Unit vectors to compare pictures with, by label, shape (m, d); and where each label begins, shape (labels,).

        Once, after the last `add`.

        Raises:
            ServiceError: INVALID_ARGUMENT where the vectors of a label make none.
        """

    @abstractmethod
    def _take(self, owners: NDArray[np.intp], vectors_nd: NDArray[np.float32]) -> None:
        """Takes at least one vector, each with the position of its label."""


class PrototypePile(ExamplePile):
    """Of each label one target, the normalised mean; in the memory of the sums, however many vectors come."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._sums = np.zeros((0, dimension))
        self._counts = np.zeros(0)

    def targets(self) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """As `ExamplePile.targets`; of a label whose vectors cancel each other out there is none."""
        count = len(self.labels)
        means = self._sums[:count] / self._counts[:count, None]
        return directions(means, self.labels, "the examples"), np.arange(count, dtype=np.intp)

    def _take(self, owners: NDArray[np.intp], vectors_nd: NDArray[np.float32]) -> None:
        self._make_room()
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


class NeighbourPile(ExamplePile):
    """Every vector is a target, those of a label in the order in which they came."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._pages: list[NDArray[np.float32]] = []
        self._owners: list[NDArray[np.intp]] = []

    def targets(self) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """As `ExamplePile.targets`."""
        owners = np.concatenate(self._owners)
        vectors = np.concatenate(self._pages)
        self._pages.clear()  # before the next copy, for these may be hundreds of megabytes
        order = np.argsort(owners, kind="stable")
        return vectors[order], np.searchsorted(owners[order], np.arange(len(self.labels)))

    def _take(self, owners: NDArray[np.intp], vectors_nd: NDArray[np.float32]) -> None:
        if self.count * self._dimension > MAX_KEPT_VALUES:
            raise invalid_argument(
                f"more than {MAX_KEPT_VALUES // self._dimension} examples of dimension {self._dimension} are too many "
                "to compare each with; rule PROTOTYPE takes any number"
            )
        self._pages.append(vectors_nd)
        self._owners.append(owners)
