from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import (
    CollectionNotFound,
    CorruptCollection,
    InvalidArgument,
    InvalidVector,
    ItemNotFound,
    SpaceMismatch,
)
from twinlens.index.item import Modality, NewItem

INJECTIONS = ["'; DROP TABLE items; --", '" OR 1=1 --', "%", "a'||'b", "\\", "?1", "[1]", "$.x", "NULL", "0"]


def blob_files(catalog: Catalog) -> set[str]:
    return {path.name for path in Path(catalog._folder).glob("*/blobs/*/*/*")}


def test_an_item_comes_back_as_it_was_stored(collection: Collection) -> None:
    given = new_item(
        "shelf/ä.jpg", image_vector=3 * axis(1), text_vector=axis(2), image=b"bytes", caption="eine Katze",
        uri="file:///ä.jpg", metadata={"tags": ["cat", None], "size": {"w": 1.5}},
    )  # fmt: skip
    assert collection.upsert([given], space_id=SPACE) == ["shelf/ä.jpg"]
    item = collection.get("shelf/ä.jpg")
    assert (item.id, item.uri, item.caption) == (given.id, given.uri, given.caption)
    assert item.metadata == given.metadata
    assert item.content_hash == hashlib.sha256(b"bytes").hexdigest()
    assert item.has_image
    assert item.created_s == item.updated_s > 0
    assert collection.get_image("shelf/ä.jpg") == b"bytes"
    np.testing.assert_array_equal(collection.get_vector("shelf/ä.jpg", Modality.IMAGE), axis(1))
    np.testing.assert_array_equal(collection.get_vector("shelf/ä.jpg", Modality.TEXT), axis(2))


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Catalog(tmp_path)
    collection = first.create("photos", space_id=SPACE, dimension=8)
    collection.upsert([new_item(f"{i}", image_vector=axis(i), image=b"%d" % i) for i in range(5)], space_id=SPACE)
    collection.delete(["3"])
    before, counted = collection.list(), collection.stats()
    first.close()
    second = Catalog(tmp_path)
    collection = second.get("photos")
    assert collection.list() == before
    after = collection.stats()
    assert replace(after, sizes=counted.sizes) == counted, "the log of writes is in the database now"
    assert after.sizes.pictures == counted.sizes.pictures
    hits = collection.search(axis(2)[np.newaxis], modality=Modality.IMAGE, top_k=9, space_id=SPACE)[0]
    assert [hit.item.id for hit in hits] == ["2", "0", "1", "4"]
    second.close()


def test_replacing_replaces_all_of_an_item_but_when_it_was_created(collection: Collection) -> None:
    collection.upsert(
        [new_item("a", image_vector=axis(0), text_vector=axis(1), image=b"old", caption="old", metadata={"x": 1})],
        space_id=SPACE,
    )
    before = collection.get("a")
    collection.upsert([new_item("a", text_vector=axis(2), caption="new", uri="u")], space_id=SPACE)
    after = collection.get("a")
    assert (after.caption, after.uri, after.metadata, after.has_image) == ("new", "u", {}, False)
    assert after.created_s == before.created_s <= after.updated_s
    with pytest.raises(ItemNotFound, match="item 'a' of collection photos has no picture"):
        collection.get_image("a")
    with pytest.raises(ItemNotFound, match="no image vector"):
        collection.get_vector("a", Modality.IMAGE)
    assert collection.search(axis(0)[np.newaxis], modality=Modality.IMAGE, top_k=5, space_id=SPACE) == [[]]
    stats = collection.stats()
    assert (stats.items, stats.image_vectors, stats.text_vectors) == (1, 0, 1)


def test_of_items_with_one_id_in_one_call_the_later_stays(collection: Collection) -> None:
    ids = collection.upsert(
        [new_item("a", caption="first", image=b"1"), new_item("b"), new_item("a", caption="last", image=b"2")],
        space_id=SPACE,
    )
    assert ids == ["a", "b", "a"]
    assert collection.get("a").caption == "last"
    assert collection.get_image("a") == b"2"
    assert collection.stats().items == 2


def test_nothing_to_store_or_delete_is_no_error(collection: Collection) -> None:
    assert collection.upsert([], space_id=SPACE) == []
    assert collection.delete([]) == 0


def test_an_item_without_vectors_is_kept_but_not_found(collection: Collection) -> None:
    collection.upsert([new_item("a"), new_item("b", image_vector=axis(1))], space_id=SPACE)
    collection.upsert([NewItem("c", {}, caption="only words")], space_id=SPACE)
    assert collection.get("c").caption == "only words"
    hits = collection.search(axis(0)[np.newaxis], modality=Modality.IMAGE, top_k=9, space_id=SPACE)[0]
    assert [hit.item.id for hit in hits] == ["a", "b"]


def test_delete_counts_those_that_existed(collection: Collection) -> None:
    collection.upsert([new_item("a"), new_item("b")], space_id=SPACE)
    assert collection.delete(["a", "a", "unknown"]) == 1
    assert collection.delete(["a"]) == 0
    with pytest.raises(ItemNotFound, match="collection photos has no item 'a'"):
        collection.get("a")
    assert [item.id for item in collection.list()] == ["b"]


def test_an_id_that_was_deleted_can_come_back(collection: Collection) -> None:
    collection.upsert([new_item("a", image_vector=axis(0))], space_id=SPACE)
    collection.delete(["a"])
    collection.upsert([new_item("a", image_vector=axis(1))], space_id=SPACE)
    hits = collection.search(axis(1)[np.newaxis], modality=Modality.IMAGE, top_k=9, space_id=SPACE)[0]
    assert [(hit.item.id, hit.score) for hit in hits] == [("a", 1.0)]


@pytest.mark.parametrize("item_id", INJECTIONS)
def test_an_id_that_looks_like_a_statement_is_just_an_id(collection: Collection, item_id: str) -> None:
    collection.upsert(
        [new_item("other"), new_item(item_id, caption=item_id, uri=item_id, metadata={item_id: item_id})],
        space_id=SPACE,
    )
    item = collection.get(item_id)
    assert (item.id, item.caption, item.uri, item.metadata) == (item_id, item_id, item_id, {item_id: item_id})
    assert {listed.id for listed in collection.list()} == {"other", item_id}
    assert collection.delete([item_id]) == 1
    assert [listed.id for listed in collection.list(after="")] == ["other"]


def test_pages_come_in_the_order_of_ids_and_meet_without_gap(collection: Collection) -> None:
    ids = ["Z", "a", "a/b", "a0", "b", "ä", "日", "😀", "0"]
    collection.upsert([new_item(item_id) for item_id in ids], space_id=SPACE)
    seen: list[str] = []
    while page := collection.list(after=seen[-1] if seen else "", limit=2):
        assert len(page) <= 2
        seen += [item.id for item in page]
    assert seen == sorted(ids)


@pytest.mark.parametrize("limit", [0, -5])
def test_a_page_of_none_is_refused(collection: Collection, limit: int) -> None:
    with pytest.raises(InvalidArgument, match=f"limit is {limit}"):
        collection.list(limit=limit)


def test_a_page_may_be_as_long_as_one_likes(collection: Collection) -> None:
    assert collection.list(limit=2**80) == []


def test_one_bad_item_keeps_the_whole_call_from_storing_anything(collection: Collection, catalog: Catalog) -> None:
    collection.upsert([new_item("a", caption="old", image=b"old")], space_id=SPACE)
    bad = [
        (new_item("c", image_vector=np.zeros(8)), InvalidVector, "image vector of item 'c' is all zeros"),
        (new_item("c", image_vector=np.full(8, np.nan)), InvalidVector, "item 'c'.*not finite"),
        (new_item("c", image_vector=np.ones(7)), InvalidVector, "item 'c' has dimension 7, but 8"),
        (new_item("c\n"), InvalidArgument, "control characters"),
        (new_item("c", metadata={"x": float("nan")}), InvalidArgument, "JSON"),
    ]
    for item, error, message in bad:
        with pytest.raises(error, match=message):
            collection.upsert([new_item("a", caption="new", image=b"new"), item], space_id=SPACE)
    assert [(item.id, item.caption) for item in collection.list()] == [("a", "old")]
    assert blob_files(catalog) == {hashlib.sha256(b"old").hexdigest()}


def test_another_space_is_refused_naming_both(collection: Collection) -> None:
    with pytest.raises(SpaceMismatch, match="collection photos holds vectors of space space-one, not of space other"):
        collection.upsert([new_item("a")], space_id="other")
    assert collection.stats().items == 0


@pytest.mark.parametrize("call", ["get", "get_image", "get_vector"])
def test_asking_for_what_is_not_there_names_it(collection: Collection, call: str) -> None:
    arguments = ("nowhere", Modality.TEXT) if call == "get_vector" else ("nowhere",)
    with pytest.raises(ItemNotFound, match="collection photos has no item 'nowhere'"):
        getattr(collection, call)(*arguments)


def test_the_same_picture_under_two_ids_is_stored_once_and_goes_with_the_last(
    collection: Collection,
    catalog: Catalog,
) -> None:
    collection.upsert([new_item("a", image=b"same"), new_item("b", image=b"same")], space_id=SPACE)
    assert blob_files(catalog) == {hashlib.sha256(b"same").hexdigest()}
    collection.delete(["a"])
    assert collection.get_image("b") == b"same"
    collection.upsert([new_item("b", image=b"another")], space_id=SPACE)
    assert blob_files(catalog) == {hashlib.sha256(b"another").hexdigest()}
    collection.delete(["b"])
    assert blob_files(catalog) == set()


def test_storing_the_same_item_again_keeps_its_picture(collection: Collection) -> None:
    for _ in range(2):
        collection.upsert([new_item("a", image=b"same")], space_id=SPACE)
    assert collection.get_image("a") == b"same"


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_picture_that_is_gone_or_changed_on_disk_is_reported_by_name(
    collection: Collection,
    catalog: Catalog,
    damage: str,
) -> None:
    collection.upsert([new_item("a", image=b"picture")], space_id=SPACE)
    (path,) = catalog._folder.glob("photos/blobs/*/*/*")
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"pictura")
    with pytest.raises(CorruptCollection, match=r"collection photos: the .*picture"):
        collection.get_image("a")
    assert collection.get("a").has_image


def test_vectors_can_be_gone_through_in_batches(collection: Collection, rng: np.random.Generator) -> None:
    vectors = rng.standard_normal((25, 8))
    collection.upsert(
        [new_item(f"{i:02d}", image_vector=vector, text_vector=-vector) for i, vector in enumerate(vectors)],
        space_id=SPACE,
    )
    collection.delete(["07"])
    batches = list(collection.iter_vectors(Modality.TEXT, batch=10))
    assert [len(ids) for ids, _ in batches] == [10, 10, 4]
    for ids, array in batches:
        for item_id, vector in zip(ids, array, strict=True):
            np.testing.assert_array_equal(vector, collection.get_vector(item_id, Modality.TEXT))
    assert sorted(item_id for ids, _ in batches for item_id in ids) == [f"{i:02d}" for i in range(25) if i != 7]


def test_after_closing_every_call_says_that_it_is_closed(collection: Collection) -> None:
    collection.close()
    collection.close()
    for call in (collection.list, collection.stats, lambda: collection.get("a"), lambda: collection.space_id):
        with pytest.raises(CollectionNotFound, match="collection photos is no longer open"):
            call()


def test_pictures_of_many_deleted_items_are_removed_in_turns_with_other_writes(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.index.state._DISCARDED_AT_ONCE", 2)
    collection.upsert([new_item(f"{i}", image=b"picture %d" % i) for i in range(7)], space_id=SPACE)
    blobs = collection._state.folder / "blobs"
    assert sum(path.is_file() for path in blobs.rglob("*")) == 7
    collection.delete([f"{i}" for i in range(5)])
    assert sum(path.is_file() for path in blobs.rglob("*")) == 2
    assert collection.get_image("6") == b"picture 6"
