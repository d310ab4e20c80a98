from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from twinlens.training.data.pair_order import CaptionChoice, PairOrder


def drawn(order: PairOrder, batches: int) -> NDArray[np.int64]:
    found = []
    for _ in range(batches):
        found.append(order.next_ones())
        order.take(len(found[-1]))
    return np.stack(found)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.data())
def test_every_pair_comes_once_an_epoch_and_never_twice_in_a_batch(count: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, count))
    seen = np.zeros(count, dtype=int)
    for rows in drawn(PairOrder(count, size, np.random.default_rng(0)), 60):
        assert len(set(rows.tolist())) == size
        seen[rows] += 1
        assert seen.max() - seen.min() <= 2
    # Some may have been put off by the batches that two epochs share.
    assert seen.max() - seen.min() <= 1 + (60 * size % count > 0)


def test_what_was_not_taken_comes_next() -> None:
    order = PairOrder(10, 4, np.random.default_rng(0))
    first = order.next_ones()
    order.take(2)
    assert order.next_ones()[:2].tolist() == first[2:].tolist()


@pytest.mark.parametrize(("power", "share"), [(0.0, 0.9), (0.5, 0.75), (1.0, 0.5)])
def test_classes_are_seen_in_proportion_to_a_power_of_their_size(power: float, share: float) -> None:
    classes = np.repeat([0, 1], [180, 20])
    order = PairOrder(200, 10, np.random.default_rng(0), classes=classes, power=power)
    seen = np.bincount(drawn(order, 400).ravel(), minlength=200)
    assert seen[:180].sum() / seen.sum() == pytest.approx(share, abs=0.01)
    # Within a class all alike, and spread out.
    for part in (seen[:180], seen[180:]):
        assert part.max() - part.min() <= 3


def test_a_class_too_small_for_its_share_is_in_every_batch_and_the_others_share_the_rest() -> None:
    classes = np.repeat([0, 1, 2], [100, 60, 2])
    order = PairOrder(162, 16, np.random.default_rng(0), classes=classes, power=1.0)
    rows = drawn(order, 300)
    seen = np.bincount(rows.ravel(), minlength=162)
    assert seen[160:].min() >= 295
    assert seen[:100].sum() == pytest.approx(seen[100:160].sum(), rel=0.02)
    assert all(len(set(batch.tolist())) == 16 for batch in rows)


def test_the_order_is_a_function_of_the_seed() -> None:
    def order(seed: int) -> list[list[int]]:
        return drawn(PairOrder(20, 6, np.random.default_rng(seed)), 9).tolist()  # type: ignore[no-any-return]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_each_caption_of_a_pair_is_shown_before_any_comes_again() -> None:
    first, counts = np.array([0, 3, 4]), np.array([3, 1, 5])
    choice = CaptionChoice(first, counts, np.random.default_rng(0))
    shown = np.stack([choice.advance(np.arange(3)) for _ in range(15)])
    for k in range(3):
        for start in range(0, 15, int(counts[k])):
            assert sorted(shown[start : start + counts[k], k]) == list(range(first[k], first[k] + counts[k]))
    assert choice.now(np.array([2])) == shown[-1, 2]
