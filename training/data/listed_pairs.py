"""Which pairs of picture and caption there are, before any picture is read: what all sources have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.class_names import number_labels
from twinlens.training.data.equal_pairs import ranges
from twinlens.training.data.listed_pictures import Picture


@dataclass(frozen=True, slots=True)
class CaptionedPicture:
    """A picture and one caption of it.

    Attributes:
        id: Ties the row to an item of a collection and to mined negatives.
        picture: Where its bytes are.
        caption: A true sentence about it.
        wrong: Sentences that are false of it.
        weight: How much it counts in the loss.
        label: The class of the picture; None where unknown.
    """

    id: str
    picture: Picture
    caption: str
    wrong: tuple[str, ...] = ()
    weight: float = 1.0
    label: str | None = None


@dataclass(frozen=True)
class ListedPairs:
    """The n pairs of a source, and the m captions that they are shown with.

    Attributes:
        ids: Unique names of the pairs.
        pictures: Of the pairs; pairs of one picture name it alike.
        captions: As written.
        caption_ids: Names of the captions; empty where they have none of their own.
        first_captions: Pair i is shown with one of the captions from this one on, int64, shape (n,).
        caption_counts: How many it has, int64, shape (n,).
        wrong: For each pair captions that are false of its picture; empty where no pair has any.
        weights: How much each pair counts, float32, shape (n,); None: all alike.
        classes: Of the pairs, int64, shape (n,), -1 where unknown; None where the source knows none.
        problems: What of the source cannot be read, and why.
    """

    ids: tuple[str, ...]
    pictures: tuple[Picture, ...]
    captions: tuple[str, ...]
    caption_ids: tuple[str, ...]
    first_captions: NDArray[np.int64]
    caption_counts: NDArray[np.int64]
    wrong: tuple[tuple[str, ...], ...] = ()
    weights: NDArray[np.float32] | None = None
    classes: NDArray[np.int64] | None = None
    problems: tuple[tuple[str, str], ...] = ()

    def of(self, rows: Sequence[int]) -> ListedPairs:
        """Some of the pairs, and of the captions those that one of them is shown with."""
        kept = np.array(rows, dtype=np.int64)
        first, counts = self.first_captions[kept], self.caption_counts[kept]
        used = np.unique(ranges(first, counts)[1])
        return ListedPairs(
            ids=tuple(self.ids[row] for row in rows),
            pictures=tuple(self.pictures[row] for row in rows),
            captions=tuple(self.captions[k] for k in used),
            caption_ids=tuple(self.caption_ids[k] for k in used) if self.caption_ids else (),
            first_captions=np.searchsorted(used, first),
            caption_counts=counts,
            wrong=tuple(self.wrong[row] for row in rows) if self.wrong else (),
            weights=None if self.weights is None else self.weights[kept],
            classes=None if self.classes is None else self.classes[kept],
            problems=self.problems,
        )


def pair_each(rows: Sequence[CaptionedPicture]) -> ListedPairs:
    """Every caption with its picture is a pair."""
    count = len(rows)
    return ListedPairs(
        ids=tuple(row.id for row in rows),
        pictures=tuple(row.picture for row in rows),
        captions=tuple(row.caption for row in rows),
        caption_ids=tuple(row.id for row in rows),
        first_captions=np.arange(count),
        caption_counts=np.ones(count, dtype=np.int64),
        wrong=tuple(row.wrong for row in rows) if any(row.wrong for row in rows) else (),
        weights=_weights([row.weight for row in rows]),
        classes=_classes([row.label for row in rows]),
    )


def pair_pictures(rows: Sequence[CaptionedPicture]) -> ListedPairs:
    """Every picture is a pair, with all its captions to choose from; its name is that of the first.

    The wrong captions of a picture are those of all its rows, its weight is their mean, its class that of the first.
    """
    grouped: dict[Picture, list[CaptionedPicture]] = {}
    for row in rows:
        grouped.setdefault(row.picture, []).append(row)
    groups = list(grouped.values())
    counts = np.array([len(group) for group in groups], dtype=np.int64)
    wrong = [tuple(dict.fromkeys(text for row in group for text in row.wrong)) for group in groups]
    return ListedPairs(
        ids=tuple(group[0].id for group in groups),
        pictures=tuple(grouped),
        captions=tuple(row.caption for group in groups for row in group),
        caption_ids=tuple(row.id for group in groups for row in group),
        first_captions=np.cumsum(counts) - counts,
        caption_counts=counts,
        wrong=tuple(wrong) if any(wrong) else (),
        weights=_weights([sum(row.weight for row in group) / len(group) for group in groups]),
        classes=_classes([group[0].label for group in groups]),
    )


def _classes(labels: list[str | None]) -> NDArray[np.int64] | None:
    return number_labels(labels)[1] if any(label is not None for label in labels) else None


def _weights(given: list[float]) -> NDArray[np.float32] | None:
    return np.array(given, dtype=np.float32) if any(weight != 1.0 for weight in given) else None
