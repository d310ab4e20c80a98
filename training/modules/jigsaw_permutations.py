"""The orders of tiles that a jigsaw puzzle is solved for."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

import numpy as np
import numpy.typing as npt

LARGEST = 5000


@lru_cache(maxsize=8)
def distant_permutations(count: int, tiles: int = 9) -> npt.NDArray[np.int64]:
    """Permutations that are far from each other (Noroozi & Favaro 2016, algorithm 1).

    Greedy: each next one has the largest average Hamming distance to those already chosen; among equals, the largest
    distance to the nearest of them, so that no two puzzles are nearly the same. The paper draws the first at random and
    says nothing of equals; here the first is the identity and the rest follow, the same in every run.

    Args:
        count: How many; 1 to 5,000 and at most `tiles`!.
        tiles: Of a puzzle; at most 9.

    Returns:
        Shape (count, tiles), read-only: the tile that comes to each place.

    Raises:
        ValueError: if there are not so many, or too many to search through.
    """
    if not 2 <= tiles <= 9:
        raise ValueError(f"puzzles have 2 to 9 tiles, not {tiles}")
    # One row a place: comparing along contiguous memory is several times as fast.
    every = np.array(list(permutations(range(tiles))), dtype=np.uint8).T.copy()
    if not 1 <= count <= min(LARGEST, every.shape[1]):
        raise ValueError(f"there are 1 to {min(LARGEST, every.shape[1])} permutations to choose from, not {count}")
    total = np.zeros(every.shape[1], dtype=np.int64)
    nearest = np.full(every.shape[1], tiles, dtype=np.int64)
    chosen = [0]
    while len(chosen) < count:
        distance = np.zeros(every.shape[1], dtype=np.uint8)
        for place in range(tiles):
            distance += every[place] != every[place, chosen[-1]]
        total += distance
        np.minimum(nearest, distance, out=nearest)
        # What was chosen has distance 0 to itself and is never taken again.
        score = np.where(nearest > 0, total * (tiles + 1) + nearest, -1)
        chosen.append(int(score.argmax()))
    found = every[:, chosen].T.astype(np.int64)
    found.setflags(write=False)
    return found
