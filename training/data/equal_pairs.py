"""Which pairs of the data are as right for each other as for themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Stands for the pair of a caption that belongs to no picture.
NO_PAIR = -1


class EqualPairs:
    """Knows which captions belong to which pictures over the whole data set, not only within a batch.

    Pairs are equals if the picture of either is known to have the caption of the other: pairs of one picture, pairs of
    one caption, and pairs that a third one connects by having the picture of one and the caption of the other.
    """

    def __init__(
        self,
        image_keys: NDArray[np.int64],
        text_keys: NDArray[np.int64],
        first_captions: NDArray[np.int64] | None = None,
        caption_counts: NDArray[np.int64] | None = None,
    ) -> None:
        """Takes the pairs and the captions.

        Args:
            image_keys: From 0; equal numbers name equal pictures, shape (n,).
            text_keys: The same for captions, shape (m,).
            first_captions: Pair i has the captions from this one on, shape (n,); None: caption i alone.
            caption_counts: How many it has, shape (n,); None: one.
        """
        count = len(image_keys)
        first = np.arange(count) if first_captions is None else first_captions
        counts = np.ones(count, dtype=np.int64) if caption_counts is None else caption_counts
        self._image_keys = image_keys
        self._text_keys = text_keys
        pairs, captions = ranges(first, counts)
        known = np.unique(np.stack([image_keys[pairs], text_keys[captions]], axis=1), axis=0)
        self._captions = known[:, 1]
        # Picture k has the captions from starts[k] to starts[k + 1].
        self._starts = np.searchsorted(known[:, 0], np.arange(image_keys.max(initial=-1) + 2))

    def __call__(
        self,
        rows: NDArray[np.int64],
        row_captions: NDArray[np.int64],
        columns: NDArray[np.int64],
        column_captions: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Whether pair `rows[i]` and pair `columns[j]` are equals, shape (len(rows), len(columns)).

        Args:
            rows: Pairs.
            row_captions: The caption that each is shown with.
            columns: Pairs; `NO_PAIR` where a caption stands without a picture.
            column_captions: The caption that each is shown with.
        """
        return self._has_caption(rows, column_captions) | self._has_caption(columns, row_captions).T

    def _has_caption(self, rows: NDArray[np.int64], captions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the picture of pair `rows[i]` has caption `captions[j]`."""
        if not len(captions):
            return np.zeros((len(rows), 0), dtype=np.bool_)
        wanted, column_of = np.unique(self._text_keys[captions], return_inverse=True)
        has = np.zeros((len(rows), len(wanted) + 1), dtype=np.bool_)  # the last column takes what nobody asks for
        pictures = self._image_keys[rows]
        counts = np.where(rows == NO_PAIR, 0, self._starts[pictures + 1] - self._starts[pictures])
        of, known = ranges(self._starts[pictures], counts)
        keys = self._captions[known]
        places = np.searchsorted(wanted, keys)
        asked = (places < len(wanted)) & (wanted[np.minimum(places, len(wanted) - 1)] == keys)
        has[of, np.where(asked, places, len(wanted))] = True
        return np.asarray(has[:, column_of])


def ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All numbers from `starts[i]` to `starts[i] + counts[i] - 1`, one range after the other.

    Returns:
        For each number which range it is of, and the number; both of shape (sum of counts,).
    """
    of = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return of, starts[of] + within
