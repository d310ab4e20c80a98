from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from twinlens.training.modules.jigsaw_permutations import distant_permutations


def distances(count: int, tiles: int = 9) -> list[int]:
    chosen = distant_permutations(count, tiles)
    return [int((chosen[i] != chosen[j]).sum()) for i in range(count) for j in range(i)]


def slow(count: int, tiles: int) -> list[tuple[int, ...]]:
    """Algorithm 1 of the paper with lists, the first of all that are equally good."""
    every = list(permutations(range(tiles)))
    chosen = [every[0]]
    while len(chosen) < count:
        best, best_score = every[0], (-1, -1)
        for candidate in every:
            apart = [sum(a != b for a, b in zip(candidate, other, strict=True)) for other in chosen]
            if min(apart) > 0 and (sum(apart), min(apart)) > best_score:
                best, best_score = candidate, (sum(apart), min(apart))
        chosen.append(best)
    return chosen


@pytest.mark.parametrize(("count", "tiles"), [(6, 3), (20, 4), (15, 5)])
def test_the_choice_equals_the_slow_transcription(count: int, tiles: int) -> None:
    assert [tuple(row) for row in distant_permutations(count, tiles).tolist()] == slow(count, tiles)


def test_nine_permutations_of_nine_tiles_differ_everywhere() -> None:
    assert distances(9) == [9] * 36


def test_a_hundred_are_as_far_apart_as_in_the_paper() -> None:
    # Table 3: 8.08 on average with 100 permutations, at least 2.
    apart = distances(100)
    assert np.mean(apart) == pytest.approx(8.08, abs=0.005)
    assert min(apart) == 4


def test_all_are_permutations_and_no_two_are_the_same() -> None:
    chosen = distant_permutations(100)
    assert (np.sort(chosen, axis=1) == np.arange(9)).all()
    assert len({tuple(row) for row in chosen.tolist()}) == 100


def test_more_begin_with_the_same_ones() -> None:
    assert (distant_permutations(20)[:10] == distant_permutations(10)).all()


@pytest.mark.parametrize(("count", "tiles"), [(0, 9), (5001, 9), (7, 3)])
def test_more_than_there_are_is_refused(count: int, tiles: int) -> None:
    with pytest.raises(ValueError, match="permutations to choose from"):
        distant_permutations(count, tiles)


def test_puzzles_too_large_to_search_are_refused() -> None:
    with pytest.raises(ValueError, match="2 to 9 tiles, not 16"):
        distant_permutations(10, 16)
