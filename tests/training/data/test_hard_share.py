from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlens.training.data.hard_share import HardShare, all_of, drawn_for

# Two anchors: eight candidates, hardest first, and three.
CANDIDATES = np.array([[10, 11, 12, 13, 14, 15, 16, 17], [20, 21, 22, -1, -1, -1, -1, -1]])
GROWING = HardShare(
    texts_per_anchor=2, share_start=0.25, window=0.25, hardness_start=0.0, hardness_end=1.0, grown_after=100
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def kept(share: HardShare, number: int) -> list[list[int]]:
    return [[int(c) for c in row if c >= 0] for row in share.windowed(CANDIDATES, number)]


def test_share_and_hardness_grow_evenly_and_then_stay() -> None:
    numbers = (0, 50, 100, 1000)
    assert [GROWING.share(n) for n in numbers] == pytest.approx([0.25, 0.625, 1.0, 1.0])
    assert [GROWING.hardness(n) for n in numbers] == pytest.approx([0.0, 0.5, 1.0, 1.0])


def test_without_a_curriculum_everything_enters_from_the_first_batch_on() -> None:
    share = HardShare(texts_per_anchor=2)
    assert share.share(0) == share.hardness(0) == 1.0
    assert kept(share, 0) == [[10, 11, 12, 13, 14, 15, 16, 17], [20, 21, 22]]


def test_the_window_moves_from_the_easiest_to_the_hardest() -> None:
    assert kept(GROWING, 0) == [[16, 17], [21, 22]]
    assert kept(GROWING, 50) == [[13, 14], [20, 21]]
    assert kept(GROWING, 100) == [[10, 11], [20, 21]]


def test_the_window_is_never_too_narrow_for_what_is_to_be_drawn() -> None:
    share = HardShare(texts_per_anchor=3, window=0.01)
    assert kept(share, 0) == [[10, 11, 12], [20, 21, 22]]


def test_each_anchor_gets_as_many_as_it_has_without_repetition() -> None:
    drawn = HardShare(texts_per_anchor=5).drawn(CANDIDATES, 5, 0, rng())
    assert drawn.shape == (2, 5)
    assert len(set(drawn[0])) == 5
    assert set(drawn[0]) <= set(range(10, 18))
    assert sorted(drawn[1]) == [-1, -1, 20, 21, 22]


def test_draws_differ_from_time_to_time_and_repeat_under_a_seed() -> None:
    share, generator = HardShare(texts_per_anchor=3), rng()
    first, second = (share.drawn(CANDIDATES, 3, number, generator) for number in (0, 1))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, share.drawn(CANDIDATES, 3, 0, rng()))


def test_every_candidate_of_the_window_is_as_likely() -> None:
    generator = rng()
    share = HardShare(texts_per_anchor=2)
    seen = np.concatenate([share.drawn(CANDIDATES[:1], 2, 0, generator).ravel() for _ in range(4000)])
    counts = np.unique(seen, return_counts=True)[1]
    assert len(counts) == 8
    assert counts.min() > 850  # 1000 each but for chance
    assert counts.max() < 1150


def test_between_whole_numbers_a_part_of_the_anchors_has_one_more() -> None:
    many = np.tile(CANDIDATES[:1], (4000, 1))
    counts = (GROWING.drawn(many, 2, 50, rng()) >= 0).sum(axis=1)  # 2 · 0.625 = 1.25
    assert set(counts) == {1, 2}
    assert counts.mean() == pytest.approx(1.25, abs=0.03)


def test_none_or_nothing_to_draw_from_gives_none() -> None:
    share = HardShare()
    assert share.drawn(CANDIDATES, 0, 0, rng()).shape == (2, 0)
    assert share.drawn(CANDIDATES[:, :0], 3, 0, rng()).shape == (2, 0)
    assert share.windowed(CANDIDATES[:, :0], 0).shape == (2, 0)
    assert len(all_of(share.drawn(CANDIDATES, 0, 0, rng()))) == 0


@pytest.mark.parametrize("columns", [[7, 3, 9], [9, 7, 3, 5], [3], []])
def test_what_was_drawn_is_found_among_columns_in_any_order(columns: list[int]) -> None:
    drawn = np.array([[3, -1], [9, 7], [-1, -1], [8, 3]])
    wanted: NDArray[np.float32] = np.array([[float(c in row) for c in columns] for row in drawn], dtype=np.float32)
    assert np.array_equal(drawn_for(drawn, np.array(columns, dtype=np.int64)), wanted.reshape(4, len(columns)))
