"""Collections and their items, by both clients against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pictures import solid
from twinlens.client import NewItem, TwinlensError


def test_a_collection_is_created_listed_described_and_deleted(client: Any) -> None:
    made = client.create_collection("short-lived")
    assert (made.id, made.item_count, made.dimension) == ("short-lived", 0, 32)
    assert made.create_time.tzinfo is not None
    with pytest.raises(TwinlensError) as caught:
        client.create_collection("short-lived")
    assert caught.value.code == "ALREADY_EXISTS"
    assert "short-lived" in [each.id for each in client.list_collections()]
    assert client.get_collection("short-lived") == made
    client.delete_collection("short-lived")
    assert "short-lived" not in [each.id for each in client.list_collections()]


def test_a_malformed_collection_id_is_refused(client: Any) -> None:
    with pytest.raises(TwinlensError) as caught:
        client.create_collection("No Good!")
    assert caught.value.code == "INVALID_ARGUMENT"


def test_items_that_fail_keep_their_position_and_the_others_are_stored(
    client: Any, photos: str, tmp_path: Path
) -> None:
    report = client.upsert(
        photos,
        [
            NewItem(id="a", image=tmp_path / "missing.png"),
            NewItem(id="b", image=solid("red")),
            NewItem(id="c", image=b"broken"),
            NewItem(id="d", caption="words", metadata={"when": object()}),
            NewItem(id="e"),
            NewItem(id="f", caption="only words"),
            NewItem(id="g\n", caption="words"),
        ],
    )
    assert report.stored == 2
    assert [(failure.position, failure.id, failure.reason) for failure in report.failures] == [
        (0, "a", "INVALID_IMAGE"),
        (2, "c", "INVALID_IMAGE"),
        (3, "d", "INVALID_INPUT"),
        (4, "e", "INVALID_INPUT"),
        (6, "g\n", "INVALID_INPUT"),
    ]
    assert {"b", "f"} < {item.id for item in client.list_items(photos)}


def test_an_item_comes_back_as_it_was_stored(client: Any, photos: str) -> None:
    data = solid("yellow", "WEBP")
    metadata = {"year": 2020, "share": 0.5, "tags": ["a", None, True], "where": {"city": "Bern"}, "ok": False}
    client.upsert(photos, [NewItem(id="x/y z.webp", image=data, caption="é", uri="s3://b/k", metadata=metadata)])
    item = client.get_item(photos, "x/y z.webp", include_image=True)
    assert (item.id, item.caption, item.uri, dict(item.metadata)) == ("x/y z.webp", "é", "s3://b/k", metadata)
    assert item.image == data
    assert client.get_item(photos, "x/y z.webp").image is None


def test_an_item_without_an_id_is_known_by_its_content_and_stored_once(client: Any, photos: str) -> None:
    before = client.get_collection(photos).item_count
    for _ in range(2):
        assert client.upsert(photos, [NewItem(image=solid("red", size=(9, 9)))]).stored == 1
    assert client.get_collection(photos).item_count == before + 1


def test_the_later_of_two_items_of_one_id_stays(client: Any, photos: str) -> None:
    client.upsert(photos, (NewItem(id="twice", caption=caption) for caption in ("first", "second")))
    assert client.get_item(photos, "twice").caption == "second"


def test_items_are_listed_over_all_pages_by_id(client: Any, photos: str) -> None:
    assert [item.id for item in client.list_items(photos, page_size=3)] == ["blue", "green", "red", "yellow"]


def test_deleting_counts_what_was_there(client: Any, photos: str) -> None:
    assert client.delete_items(photos, ["red", "nobody"]) == 1
    with pytest.raises(TwinlensError) as caught:
        client.get_item(photos, "red")
    assert caught.value.code == "NOT_FOUND"
    assert client.delete_items(photos, []) == 0


def test_an_error_in_the_callers_iterable_is_the_callers(client: Any, photos: str) -> None:
    def items() -> Iterator[NewItem]:
        yield NewItem(caption="one")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        client.upsert(photos, items())


def test_a_collection_that_is_there_may_be_asked_for_again(client: Any) -> None:
    made = client.create_collection("asked-twice")
    assert client.create_collection("asked-twice", exist_ok=True) == made
    with pytest.raises(TwinlensError, match="asked-twice") as caught:
        client.create_collection("asked-twice")
    assert caught.value.code == "ALREADY_EXISTS"
    client.delete_collection("asked-twice")
