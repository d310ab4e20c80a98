"""Which pictures can be judged, by which classes, and how a share of them is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.evaluation.labelled import labelled, stratified


def pictures(labels: list[int], classes: tuple[str, ...]) -> PictureSet:
    n = len(labels)
    pixels = np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), dtype=np.uint8)
    names = tuple(f"{i}.png" for i in range(n))
    return PictureSet(pixels, np.array(labels, dtype=np.int64), classes, names, names, {})


def test_pictures_without_a_class_are_left_out() -> None:
    found = labelled(pictures([1, -1, 0], ("cat", "dog")))
    assert found.names == ("0.png", "2.png")
    assert found.labels.tolist() == [1, 0]
    assert found.pixels_nhwc[:, 0, 0, 0].tolist() == [0, 2]


def test_classes_are_matched_by_name_not_by_position() -> None:
    found = labelled(pictures([0, 1], ("bird", "dog")), ("ant", "bird", "cat", "dog"))
    assert found.labels.tolist() == [1, 3]
    assert found.classes == ("ant", "bird", "cat", "dog")


def test_a_class_that_training_does_not_know_is_named() -> None:
    with pytest.raises(DataError, match=r"'wolf' is not among .* \(cat, dog\)"):
        labelled(pictures([0, 1], ("dog", "wolf")), ("cat", "dog"))


def test_a_class_that_no_picture_has_does_not_matter() -> None:
    assert labelled(pictures([0, 0], ("dog", "wolf")), ("cat", "dog")).labels.tolist() == [1, 1]


def test_pictures_without_classes_are_refused() -> None:
    with pytest.raises(DataError, match="one folder per class"):
        labelled(pictures([-1, -1], ()))
    with pytest.raises(DataError, match=r"one class \(cat\)"):
        labelled(pictures([0, 0], ("cat",)))


def test_a_share_is_drawn_from_every_class() -> None:
    labels = np.repeat(np.arange(3), [100, 40, 7]).astype(np.int64)
    rows = stratified(labels, 0.1, seed=0)
    assert np.bincount(labels[rows]).tolist() == [10, 4, 1]
    assert rows.tolist() == sorted(set(rows.tolist()))


def test_a_class_too_small_for_its_share_keeps_one_picture() -> None:
    labels = np.repeat(np.arange(10), 20).astype(np.int64)
    assert np.bincount(labels[stratified(labels, 0.01, seed=3)]).tolist() == [1] * 10


def test_larger_shares_contain_smaller_ones_and_seeds_differ() -> None:
    labels = np.repeat(np.arange(2), 50).astype(np.int64)
    small, large = stratified(labels, 0.1, seed=0), stratified(labels, 0.4, seed=0)
    assert set(small.tolist()) < set(large.tolist())
    assert small.tolist() != stratified(labels, 0.1, seed=1).tolist()
    assert stratified(labels, 1.0, seed=0).tolist() == list(range(100))
    with pytest.raises(ValueError, match="share"):
        stratified(labels, 0.0, seed=0)
