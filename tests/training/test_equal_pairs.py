from __future__ import annotations

import numpy as np
import pytest

from twinlens.training.data.equal_pairs import NO_PAIR, EqualPairs


@pytest.mark.parametrize("seed", range(6))
def test_pairs_are_equals_where_one_picture_is_known_to_have_the_others_caption(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    images, texts = rng.integers(0, 12, count), rng.integers(0, 20, count)
    rows, columns = rng.integers(0, count, 9), rng.integers(0, count, 15)
    known = set(zip(images.tolist(), texts.tolist(), strict=True))
    expected = [
        [(images[i], texts[j]) in known or (images[j], texts[i]) in known for j in columns.tolist()]
        for i in rows.tolist()
    ]
    assert EqualPairs(images, texts)(rows, rows, columns, columns).tolist() == expected


def test_a_third_pair_outside_the_batch_connects_two() -> None:
    # 0: picture 0, caption 0. 1: picture 1, caption 1. 2: picture 0, caption 1.
    equals = EqualPairs(np.array([0, 1, 0, 2]), np.array([0, 1, 1, 2]))
    batch = np.array([0, 1, 3])
    assert equals(batch, batch, batch, batch).tolist() == [
        [True, True, False],
        [True, True, False],
        [False, False, True],
    ]


@pytest.mark.parametrize("seed", range(6))
def test_every_caption_of_a_picture_is_known_whichever_one_is_shown(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    images, counts = rng.integers(0, 12, count), rng.integers(1, 5, count)
    first = np.cumsum(counts) - counts
    texts = rng.integers(0, 30, counts.sum() + 6)  # the last are wrong captions, of no pair
    rows, columns = rng.integers(0, count, 9), np.concatenate([rng.integers(0, count, 15), np.full(6, NO_PAIR)])
    of_rows = first[rows] + rng.integers(0, counts[rows])
    of_columns = np.concatenate(
        [first[columns[:15]] + rng.integers(0, counts[columns[:15]]), counts.sum() + np.arange(6)]
    )
    known = {(images[i], texts[k]) for i in range(count) for k in range(first[i], first[i] + counts[i])}
    expected = [
        [
            (images[i], texts[b]) in known or (j != NO_PAIR and (images[j], texts[a]) in known)
            for j, b in zip(columns, of_columns, strict=True)
        ]
        for i, a in zip(rows, of_rows, strict=True)
    ]
    assert EqualPairs(images, texts, first, counts)(rows, of_rows, columns, of_columns).tolist() == expected
