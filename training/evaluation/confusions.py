"""Which class was taken for which. What is kept grows with the pictures, not with the square of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Confusions:
    """Where pictures of known classes went.

    Attributes:
        labels: The class of each of n pictures, int64, shape (n,), each in [0, classes).
        chosen: The class that each went to, int64, shape (n,).
        classes: How many there are.
    """

    labels: NDArray[np.int64]
    chosen: NDArray[np.int64]
    classes: int

    def pictures(self) -> NDArray[np.int64]:
        """How many pictures each class has, shape (classes,)."""
        return np.bincount(self.labels, minlength=self.classes)

    def right(self) -> NDArray[np.int64]:
        """How many pictures of each class went to it, shape (classes,)."""
        return np.bincount(self.labels[self.labels == self.chosen], minlength=self.classes)

    def matrix(self, of: NDArray[np.integer] | None = None) -> NDArray[np.int64]:
        """Pictures of class i that went to class j, shape (c, c).

        Args:
            of: The c classes to count, in rising order; None: all.
        """
        rows = np.arange(self.classes) if of is None else np.asarray(of)
        counted = np.isin(self.labels, rows) & np.isin(self.chosen, rows)
        matrix = np.zeros((len(rows), len(rows)), dtype=np.int64)
        places = np.searchsorted(rows, self.labels[counted]), np.searchsorted(rows, self.chosen[counted])
        np.add.at(matrix, places, 1)
        return matrix

    def most_confused(self, most: int) -> NDArray[np.int64]:
        """The classes with most pictures that went elsewhere or came from elsewhere, in rising order."""
        wrong = self.labels != self.chosen
        sent, got = (np.bincount(each[wrong], minlength=self.classes) for each in (self.labels, self.chosen))
        return np.sort(np.argsort(-(sent + got), kind="stable")[:most])

    def pairs(self, most: int) -> list[tuple[int, int, int]]:
        """A class, another that its pictures went to, and how many did; the most first."""
        wrong = self.labels != self.chosen
        moves = np.stack([self.labels[wrong], self.chosen[wrong]], axis=1)
        pairs, counts = np.unique(moves, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:most].tolist()
        return [(int(pairs[row, 0]), int(pairs[row, 1]), int(counts[row])) for row in order]
