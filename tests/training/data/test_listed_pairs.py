from __future__ import annotations

import dataclasses
from pathlib import Path

from twinlens.training.data.listed_pairs import CaptionedPicture, pair_each, pair_pictures
from twinlens.training.data.listed_pictures import ListedPicture


def captioned(
    identity: str, name: str, caption: str, wrong: tuple[str, ...] = (), weight: float = 1.0
) -> CaptionedPicture:
    return CaptionedPicture(identity, ListedPicture(name, None, Path(name)), caption, wrong, weight)


ROWS = [
    captioned("a", "1.png", "one", ("x",)),
    captioned("b", "2.png", "two", (), 3.0),
    captioned("c", "1.png", "three", ("y", "x"), 2.0),
]


def test_each_caption_is_a_pair() -> None:
    pairs = pair_each(ROWS)
    assert pairs.ids == pairs.caption_ids == ("a", "b", "c")
    assert pairs.first_captions.tolist() == [0, 1, 2]
    assert pairs.caption_counts.tolist() == [1, 1, 1]
    assert pairs.wrong == (("x",), (), ("y", "x"))
    assert pairs.weights is not None
    assert pairs.weights.tolist() == [1, 3, 2]


def test_each_picture_is_a_pair_with_all_its_captions() -> None:
    pairs = pair_pictures(ROWS)
    assert pairs.ids == ("a", "b")
    assert pairs.captions == ("one", "three", "two")
    assert pairs.caption_ids == ("a", "c", "b")
    assert pairs.first_captions.tolist() == [0, 2]
    assert pairs.caption_counts.tolist() == [2, 1]
    assert pairs.wrong == (("x", "y"), ())
    assert pairs.weights is not None
    assert pairs.weights.tolist() == [1.5, 3]


def test_labels_make_classes() -> None:
    rows = [dataclasses.replace(row, label=label) for row, label in zip(ROWS, ["x", None, "y"], strict=True)]
    found = [pair(rows).classes for pair in (pair_each, pair_pictures)]
    assert [None if classes is None else classes.tolist() for classes in found] == [[0, -1, 1], [0, -1]]
    assert pair_each(ROWS).classes is None


def test_some_of_the_pairs_keep_their_captions() -> None:
    kept = pair_pictures(ROWS).of([1])
    assert kept.ids == ("b",)
    assert kept.captions == ("two",)
    assert kept.first_captions.tolist() == [0]
    assert kept.wrong == ((),)


def test_nothing_is_weighed_or_wrong_where_nothing_says_so() -> None:
    pairs = pair_each([captioned("a", "1.png", "one")])
    assert pairs.weights is None
    assert pairs.wrong == ()
