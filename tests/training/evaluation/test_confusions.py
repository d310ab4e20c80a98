"""Which class was taken for which, against the whole matrix of all classes."""

from __future__ import annotations

import numpy as np
import pytest

from twinlens.training.evaluation.confusions import Confusions


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_whole_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, chosen = rng.integers(0, 6, size=80), rng.integers(0, 7, size=80)  # the last class has no pictures
    whole = np.zeros((7, 7), dtype=int)
    for own, went in zip(labels, chosen, strict=True):
        whole[own, went] += 1
    found = Confusions(labels, chosen, 7)
    assert found.matrix().tolist() == whole.tolist()
    assert found.pictures().tolist() == whole.sum(axis=1).tolist()
    assert found.right().tolist() == whole.diagonal().tolist()
    some = np.array([1, 2, 6])
    assert found.matrix(some).tolist() == whole[np.ix_(some, some)].tolist()
    wrong = whole - np.diag(whole.diagonal())
    troubled = (wrong.sum(axis=0) + wrong.sum(axis=1)).tolist()
    kept = found.most_confused(3).tolist()
    assert min(troubled[k] for k in kept) >= max(troubled[k] for k in range(7) if k not in kept)
    pairs = found.pairs(5)
    assert [count for _, _, count in pairs] == sorted(wrong.ravel().tolist(), reverse=True)[:5]
    assert all(wrong[own, other] == count for own, other, count in pairs)


def test_nothing_is_confused_where_all_is_right() -> None:
    assert Confusions(np.arange(3), np.arange(3), 3).pairs(5) == []


def test_a_hundred_thousand_classes_need_no_matrix() -> None:
    labels = np.arange(100_000)
    found = Confusions(labels, np.roll(labels, 1), 100_000)
    assert len(found.pairs(20)) == 20
    assert found.matrix(found.most_confused(50)).shape == (50, 50)
