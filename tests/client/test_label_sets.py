"""Label sets, and when none of the labels fits, by both clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pictures import solid
from twinlens.client import LabelSet, NoneOfThese, TwinlensError


@pytest.fixture
def colours(client: Any) -> Iterator[LabelSet]:
    made = client.put_label_set(
        "colours",
        ["red", "green", "blue"],
        templates=["a {} wall", "{} {all} over"],
        none_of_these=NoneOfThese(min_cosine=0.5, background=["a yellow wall"]),
    )
    yield made
    for each in client.list_label_sets():
        client.delete_label_set(each.id)


def test_what_was_put_is_returned_listed_and_deleted(client: Any, colours: LabelSet) -> None:
    assert colours.labels == ("red", "green", "blue")
    assert colours.templates == ("a {} wall", "{} {all} over")
    assert not colours.multi_label
    assert colours.none_of_these.min_cosine == 0.5
    assert colours.none_of_these.min_probability is None
    assert colours.none_of_these.background == ("a yellow wall",)
    assert colours.create_time == colours.update_time
    assert colours.create_time.tzinfo is not None
    assert client.get_label_set("colours") == colours
    other = client.put_label_set("a-first", (label for label in ("x",)), multi_label=True)
    assert other.multi_label
    assert other.none_of_these == NoneOfThese()
    assert client.list_label_sets() == [other, colours]
    client.delete_label_set("a-first")
    assert client.list_label_sets() == [colours]
    for call in (client.get_label_set, client.delete_label_set):
        with pytest.raises(TwinlensError) as caught:
            call("a-first")
        assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize("top_k", [0, 1])
def test_pictures_are_labelled_by_name(client: Any, colours: LabelSet, top_k: int) -> None:
    images = [solid("red"), solid("yellow"), b"no picture"]
    red, yellow, bad = client.classify(images, label_set="colours", top_k=top_k)
    assert (red.scores[0].label, red.none_of_these) == ("red", False)
    assert len(red.scores) == (top_k or 3)
    assert yellow.none_of_these
    assert yellow.scores
    assert yellow.background_cosine > yellow.scores[0].cosine
    assert red.background_probability < 0.5 < yellow.background_probability
    assert bad.error.reason == "INVALID_IMAGE"
    assert not bad.none_of_these
    assert list(client.classify_stream(images, label_set="colours", top_k=top_k))[1].none_of_these


def test_none_fits_by_thresholds_and_background(client: Any) -> None:
    images = [solid("red"), solid("yellow")]
    for none in (
        NoneOfThese(min_cosine=0.5),
        NoneOfThese(background=["a yellow wall"]),
        NoneOfThese(min_cosine=-1, min_probability=0.0, background=["a yellow wall", "a white page"]),
    ):
        results = client.classify(images, ["red", "blue"], none_of_these=none)
        assert [result.none_of_these for result in results] == [False, True]
    plain = client.classify(images, ["red", "blue"], none_of_these=NoneOfThese())
    assert [result.none_of_these for result in plain] == [False, False]
    assert plain[0].background_cosine is None


def test_what_cannot_be_kept_is_refused(client: Any) -> None:
    for name, labels in (("No Good", ["a"]), ("good", []), ("good", ["half \ud800"]), ("good", ["a", "a"])):
        with pytest.raises(TwinlensError) as caught:
            client.put_label_set(name, labels)
        assert caught.value.code == "INVALID_ARGUMENT"
    for arguments in ({"labels": "abc"}, {"labels": ["a"], "templates": "{}"}):
        with pytest.raises(TypeError, match="brackets"):
            client.put_label_set("good", **arguments)
    assert client.list_label_sets() == []
