"""Which pairs of the data are as right for each other as for themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class EqualPairs:
    """Knows which captions belong to which pictures over the whole data set, not only within a batch.

    Pairs are equals if the picture of either is known to have the caption of the other: pairs of one picture, pairs of
    one caption, and pairs that a third one connects by having the picture of one and the caption of the other.
    """

    def __init__(self, image_keys: NDArray[np.int64], text_keys: NDArray[np.int64]) -> None:
        """Takes the pairs.

        Args:
            image_keys: From 0; equal numbers name equal pictures, shape (n,).
            text_keys: The same for captions, shape (n,).
        """
        self._image_keys = image_keys
        self._text_keys = text_keys
        known = np.unique(np.stack([image_keys, text_keys], axis=1), axis=0)
        self._captions = known[:, 1]
        # Picture k has the captions from starts[k] to starts[k + 1].
        self._starts = np.searchsorted(known[:, 0], np.arange(image_keys.max(initial=-1) + 2))

    def __call__(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether pair `rows[i]` and pair `columns[j]` are equals, shape (len(rows), len(columns))."""
        return self._has_caption(rows, columns) | self._has_caption(columns, rows).T

    def _has_caption(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the picture of `rows[i]` has the caption of `columns[j]`."""
        wanted, column_of = np.unique(self._text_keys[columns], return_inverse=True)
        has = np.zeros((len(rows), len(wanted) + 1), dtype=np.bool_)  # the last column takes what nobody asks for
        pictures = self._image_keys[rows]
        counts = self._starts[pictures + 1] - self._starts[pictures]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        captions = self._captions[np.repeat(self._starts[pictures], counts) + within]
        places = np.searchsorted(wanted, captions)
        asked = (places < len(wanted)) & (wanted[np.minimum(places, len(wanted) - 1)] == captions)
        has[np.repeat(np.arange(len(rows)), counts), np.where(asked, places, len(wanted))] = True
        return np.asarray(has[:, column_of])
