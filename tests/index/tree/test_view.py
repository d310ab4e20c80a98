"""What searches see while somebody writes in between: each of these races is brought about on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from twinlens.index.flat import FlatIndex
from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads
from twinlens.index.tree.tree_index import TreeIndex
from twinlens.index.tree.view import View

THREADS = SearchThreads(1)


def at(degrees: float) -> Vectors:
    angle = np.radians(degrees)
    return np.array([[np.cos(angle), np.sin(angle)]], dtype=np.float32)


def keys(*values: int) -> Keys:
    return np.array(values, dtype=np.int64)


class Main:
    """Merged vectors at given angles; may do something after it has searched."""

    kind = Kind.FLAT
    dimension = 2
    memory_bytes = 0

    def __init__(self, degrees: dict[int, float]) -> None:
        self.keys = keys(*sorted(degrees))
        self.matrix = np.concatenate([at(degrees[key]) for key in sorted(degrees)])
        self.afterwards: list[Callable[[], None]] = []
        self.searches = 0
        self.closed = False

    def search(self, queries: Vectors, top_k: int, *, shown: Any = None, exact: bool = False) -> Any:  # noqa: ARG002
        assert not self.closed
        self.searches += 1
        rows = np.arange(len(self.keys)) if shown is None else np.flatnonzero(shown)
        scores = queries @ self.matrix[rows].T
        order = np.stack([np.lexsort((self.keys[rows], -of_query))[:top_k] for of_query in scores])
        found = np.take_along_axis(scores, order, axis=1), self.keys[rows][order]
        if self.afterwards:
            self.afterwards.pop(0)()
        return found

    def vectors(self, rows: Any) -> Vectors:
        chosen: Vectors = self.matrix[rows]
        return chosen

    def close(self) -> None:
        self.closed = True


def tree_over(degrees: dict[int, float]) -> tuple[TreeIndex, Main]:
    tree, main = TreeIndex(2, THREADS), Main(degrees)
    tree.swap(tree.new_view(main), "token", 0)
    return tree, main


def search(tree: TreeIndex, top_k: int, **options: Any) -> list[int]:
    found: list[int] = tree.search(at(0), top_k, **options)[1][0].tolist()
    return found


def test_a_vector_moved_away_between_the_two_searches_leaves_its_place_to_the_next() -> None:
    tree, main = tree_over({1: 1, 2: 2, 3: 3})
    main.afterwards.append(lambda: tree.upsert(keys(1), at(170)))
    assert search(tree, 2) == [2, 3]
    assert main.searches == 2


def test_a_vector_moved_nearer_between_the_two_searches_is_found_once() -> None:
    tree, main = tree_over({1: 50, 2: 2, 3: 3})
    main.afterwards.append(lambda: tree.upsert(keys(1), at(0)))
    assert search(tree, 3) == [1, 2, 3]


def test_a_vector_deleted_between_the_two_searches_is_found_as_it_was_or_not_at_all() -> None:
    tree, main = tree_over({1: 1, 2: 2})
    tree.upsert(keys(9), at(90))
    main.afterwards.append(lambda: tree.delete(keys(1)))
    assert search(tree, 3) in ([1, 2, 9], [2, 9])
    assert search(tree, 3) == [2, 9]


def test_when_every_search_meets_a_change_no_key_comes_twice() -> None:
    tree, main = tree_over({key: key for key in range(1, 40)})
    main.afterwards = [lambda key=key: tree.upsert(keys(key), at(0)) for key in range(30, 1, -1)]  # type: ignore[misc]
    found = search(tree, 25)
    assert len(found) == len(set(found)) == 25


def test_a_search_goes_on_in_the_view_it_began_with() -> None:
    tree, main = tree_over({1: 1, 2: 2})
    other = Main({3: 3})
    tree.upsert(keys(7), at(7))

    def swap() -> None:
        tree.swap(tree.new_view(other), "other", 0)
        assert not main.closed

    main.afterwards.append(swap)
    assert search(tree, 5) == [1, 2, 7]
    assert main.closed
    assert search(tree, 5) == [3]
    assert len(tree) == 1


def test_closing_waits_for_no_search_but_frees_after_the_last() -> None:
    tree, main = tree_over({1: 1})
    main.afterwards.append(tree.close)
    assert search(tree, 1) == [1]
    assert main.closed
    assert tree.numbers() is None


@pytest.mark.parametrize("exact", [False, True])
def test_only_those_among_are_found_merged_or_fresh(exact: bool) -> None:
    tree, _ = tree_over({1: 1, 2: 2, 3: 3})
    tree.upsert(keys(2, 7, 8), np.concatenate([at(60), at(7), at(8)]))
    assert search(tree, 9, among=keys(0, 2, 3, 8, 10), exact=exact) == [3, 8, 2]
    assert search(tree, 1, among=keys(2), exact=exact) == [2]
    assert search(tree, 1, among=keys(), exact=exact) == []


def test_counts_hold_after_any_change() -> None:
    tree, _ = tree_over({1: 1, 2: 2, 3: 3})

    def counts() -> tuple[int, int, int, int]:
        state = tree.numbers()
        assert state is not None
        assert tree.keys().tolist() == sorted(search(tree, 99))
        return len(tree), state.merged, state.pending, state.hidden

    assert counts() == (3, 3, 0, 0)
    tree.upsert(keys(2, 9), np.concatenate([at(20), at(9)]))
    assert counts() == (4, 3, 2, 1)
    tree.upsert(keys(2, 2), np.concatenate([at(20), at(21)]))
    assert counts() == (4, 3, 2, 1)
    tree.delete(keys(2, 1, 1, 5))
    assert counts() == (2, 3, 1, 2)
    tree.delete(keys(9, 3))
    assert counts() == (0, 3, 0, 3)
    tree.upsert(keys(1), at(1))
    assert counts() == (1, 3, 1, 3)


def test_what_a_search_may_find_is_not_changed_under_it() -> None:
    view = View(Main({1: 10, 2: 20, 3: 30}), FlatIndex(2, threads=THREADS))
    view.delete(keys(1))
    seen = view.shown
    view.delete(keys(2))
    assert seen is not None
    assert seen.tolist() == [False, True, True]
