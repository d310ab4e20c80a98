"""Holds pictures out of the data of a run, with all that is said of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from twinlens.training.data.errors import DataError
from twinlens.training.data.pairs import RawPairs


def hold_out(raw: RawPairs, share: float, seed: int) -> tuple[RawPairs, RawPairs]:
    """Splits pairs by picture, so that no held-out picture is trained on with another caption.

    Equal pictures stay together, whatever their files are called.

    Args:
        raw: The pairs.
        share: Of the different pictures that are held out, rounded up.
        seed: Of the choice.

    Returns:
        The pairs to train on, and the held-out ones, both in the order of the data.

    Raises:
        DataError: if either part would have fewer than two pictures.
    """
    pictures = sorted(set(raw.image_digests))  # of a set, so that the order of the data does not matter
    count = math.ceil(share * len(pictures))
    if count < 2 or len(pictures) - count < 2:
        raise DataError(
            f"of {len(pictures)} different pictures, validation.share = {share:g} holds out {count}: "
            "at least 2 must be held out and 2 be left"
        )
    chosen = np.random.default_rng(seed).permutation(len(pictures))[:count]
    held = {pictures[k] for k in chosen}
    rows = range(len(raw.ids))
    kept = _some(raw, [row for row in rows if raw.image_digests[row] not in held])
    return kept, replace(_some(raw, [row for row in rows if raw.image_digests[row] in held]), unreadable={})


def _some(raw: RawPairs, rows: list[int]) -> RawPairs:
    return replace(
        raw,
        listed=raw.listed.of(rows),
        slots=raw.slots[np.array(rows, dtype=np.int64)],
        image_digests=tuple(raw.image_digests[row] for row in rows),
    )
