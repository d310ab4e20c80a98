"""Mined hard negatives, tied to the pairs they belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.errors import DataError
from twinlens.training.data.pairs import Pairs, pairs_of_captions
from twinlens.training.mining.manifest import MinedNegatives


@dataclass(frozen=True)
class MinedTable:
    """For every pair the captions and the pictures that are hard negatives, the hardest first; -1 fills the rows up.

    Attributes:
        texts: Rows of `Pairs.token_ids_ml`, shape (n, at most k captions).
        images: Pairs, shape (n, at most k pictures).
        unknown_rows: Rows of the manifest whose anchor or negative is not in the training data.
    """

    texts: NDArray[np.int64]
    images: NDArray[np.int64]
    unknown_rows: int


def tie(mined: MinedNegatives, pairs: Pairs) -> MinedTable:
    """Looks the manifest's ids up in the training data.

    Raises:
        DataError: if not one row of the manifest can be used.
    """
    if not len(mined):
        raise DataError("the hard-negative manifest holds no rows: mine with looser guards, or train without it")
    number = {identity: row for row, identity in enumerate(pairs.ids)}
    text_of = dict(zip(pairs.ids, pairs.first_captions.tolist(), strict=True))
    of = pairs_of_captions(pairs)
    for row, identity in enumerate(pairs.caption_ids):
        number[identity], text_of[identity] = int(of[row]), row
    found: dict[str, list[list[int]]] = {kind: [[] for _ in pairs.ids] for kind in ("text", "image")}
    unknown = 0
    hardest_first = sorted(range(len(mined)), key=lambda row: -mined.scores[row])
    for row in hardest_first:
        anchor, negative, kind = mined.anchor_ids[row], mined.negative_ids[row], mined.kinds[row]
        if anchor in number and negative in number:
            found[kind][number[anchor]].append((text_of if kind == "text" else number)[negative])
        else:
            unknown += 1
    if unknown == len(mined):
        raise DataError(
            "no row of the hard-negative manifest names ids of the training data: "
            "mine from a collection whose item ids are the data's ids"
        )
    return MinedTable(_table(found["text"]), _table(found["image"]), unknown)


def _table(lists: list[list[int]]) -> NDArray[np.int64]:
    table = np.full((len(lists), max(map(len, lists), default=0)), -1, dtype=np.int64)
    for row, negatives in enumerate(lists):
        table[row, : len(negatives)] = negatives
    return table
