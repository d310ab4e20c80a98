from __future__ import annotations

import pytest

from twinlens.index.errors import InvalidArgument
from twinlens.index.ids import check_collection_id, check_item_id


@pytest.mark.parametrize("good", ["a", "0", "photos", "a-b_c", "x" * 64, "9lives"])
def test_collection_ids_that_are_allowed(good: str) -> None:
    assert check_collection_id(good) == good


@pytest.mark.parametrize(
    "bad",
    ["", "A", "-a", "_a", ".", "..", "a/b", "a b", "a\n", "x" * 65, "é", "a.b", ".creating", "a\0"],
)
def test_collection_ids_that_are_refused_in_one_line(bad: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_collection_id(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "good",
    ["a", "folder/picture 1.jpg", "x" * 1024, "é" * 512, "日本語", "'; DROP TABLE items; --", "%", " ", "👩‍🚀"],
)
def test_item_ids_that_are_allowed(good: str) -> None:
    assert check_item_id(good) == good


@pytest.mark.parametrize("bad", ["", "x" * 1025, "é" * 513, "a\nb", "a\0b", "\x7f", "\x85", "\ud800", "a\udfff"])
def test_item_ids_that_are_refused_in_one_printable_line(bad: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_item_id(bad)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 200
