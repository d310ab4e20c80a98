from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.errors import (
    CollectionError,
    CollectionExists,
    CollectionNotFound,
    CorruptCollection,
    InvalidArgument,
    ItemNotFound,
    NotOffered,
)
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.catalog import MilvusCatalog
from twinlens.index.milvus.collection import MilvusCollection
from twinlens.index.milvus.layout import Layout, collection_of, generation_of
from twinlens.index.stats import GenerationState


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return tmp_path / "pictures"


@pytest.fixture
def catalog(address: str, pictures: Path) -> Iterator[MilvusCatalog]:
    opened = MilvusCatalog(address, pictures=str(pictures))
    yield opened
    for collection in opened.list():
        opened.delete(collection.id)
    opened.close()


@pytest.fixture
def collection(catalog: MilvusCatalog) -> MilvusCollection:
    return catalog.create("my-photos_1", space_id=SPACE, dimension=DIMENSION)


@pytest.fixture
def other(address: str, pictures: Path, collection: MilvusCollection) -> Iterator[MilvusCollection]:
    """The same collection, as another server has it."""
    catalog = MilvusCatalog(address, pictures=str(pictures))
    yield catalog.get(collection.id)
    catalog.close()


def found(collection: MilvusCollection, number: int, space_id: str = SPACE) -> list[str]:
    hits = collection.search(axis(number)[np.newaxis], modality=Modality.IMAGE, top_k=3, space_id=space_id)[0]
    return [hit.item.id for hit in hits]


def files(pictures: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in pictures.rglob("*") if path.is_file())


def test_what_one_server_acknowledged_the_other_has(collection: MilvusCollection, other: MilvusCollection) -> None:
    collection.upsert([new_item("a", image_vector=axis(0), image=b"first", metadata={"n": 1})], space_id=SPACE)
    assert found(other, 0) == ["a"]
    assert other.get_image("a") == b"first"
    other.upsert([new_item("a", image_vector=axis(1), image=b"second", metadata={"n": 2})], space_id=SPACE)
    assert collection.get("a").metadata == {"n": 2}
    assert collection.get_image("a") == b"second"
    assert collection.get_vector("a", Modality.IMAGE).tolist() == axis(1).tolist()
    assert collection.stats().image_vectors == 1
    other.delete(["a"])
    assert found(collection, 1) == []
    with pytest.raises(ItemNotFound):
        collection.get("a")


def test_a_generation_that_one_server_activates_is_active_for_the_other(
    collection: MilvusCollection, other: MilvusCollection
) -> None:
    collection.upsert([new_item("a", image_vector=axis(0))], space_id=SPACE)
    generation = other.begin_generation(space_id="space-two", dimension=4)
    assert collection.begin_generation(space_id="space-two", dimension=4) == generation
    assert [item.id for item in other.missing(generation, limit=5)] == ["a"]
    other.write_vectors(generation, {"a": {Modality.IMAGE: axis(3, 4)}})
    other.activate(generation)
    assert (collection.space_id, collection.dimension) == ("space-two", 4)
    hits = collection.search(axis(3, 4)[np.newaxis], modality=Modality.IMAGE, top_k=3, space_id="space-two")[0]
    assert [(hit.item.id, hit.score) for hit in hits] == [("a", 1.0)]
    assert [(state.space_id, state.active, state.items) for state in sorted_states(other)] == [
        (SPACE, False, 1),
        ("space-two", True, 1),
    ]


def sorted_states(collection: MilvusCollection) -> list[GenerationState]:
    return sorted(collection.generations(), key=lambda state: state.space_id)


def test_a_collection_that_one_server_deletes_is_gone_for_the_other(
    catalog: MilvusCatalog, collection: MilvusCollection, other: MilvusCollection, pictures: Path
) -> None:
    collection.upsert([new_item("a", image=b"picture")], space_id=SPACE)
    catalog.delete(collection.id)
    with pytest.raises(CollectionNotFound, match="my-photos_1"):
        other.space_id  # noqa: B018
    assert catalog.list() == []
    assert files(pictures) == []
    again = catalog.create(collection.id, space_id=SPACE, dimension=DIMENSION)
    assert again.stats().items == 0


def test_a_name_is_taken_once(catalog: MilvusCatalog, collection: MilvusCollection) -> None:
    with pytest.raises(CollectionExists, match="my-photos_1"):
        catalog.create(collection.id, space_id=SPACE, dimension=DIMENSION)
    assert [one.id for one in catalog.list()] == ["my-photos_1"]
    with pytest.raises(CollectionNotFound, match="there is no collection nothing"):
        catalog.get("nothing")


def test_a_crash_before_the_item_is_written_leaves_the_item_as_it_was(
    collection: MilvusCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection.upsert([new_item("a", image_vector=axis(0), image=b"before")], space_id=SPACE)

    def crash(*given: object) -> None:
        raise CollectionError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(collection._state.items, "put", crash)
        with pytest.raises(CollectionError):
            collection.upsert([new_item("a", image_vector=axis(1), image=b"after")], space_id=SPACE)
    assert found(collection, 1) == ["a"]
    hits = collection.search(axis(1)[np.newaxis], modality=Modality.IMAGE, top_k=3, space_id=SPACE)[0]
    assert hits[0].score == 0
    assert collection.get_image("a") == b"before"
    assert [ids for ids, _ in collection.iter_vectors(Modality.IMAGE)] == [["a"]]


@pytest.mark.parametrize(("replacements", "score"), [([2], 0.0), ([1, 2], 1.0)])
@pytest.mark.parametrize("text", ["", 'id = "a"'])
def test_an_item_replaced_in_the_middle_of_a_search_is_found_as_it_was_or_is(
    collection: MilvusCollection,
    other: MilvusCollection,
    monkeypatch: pytest.MonkeyPatch,
    replacements: list[int],
    score: float,
    text: str,
) -> None:
    collection.upsert([new_item("a", image_vector=axis(0)), new_item("b", image_vector=axis(1))], space_id=SPACE)
    index = collection._state.generations.index(collection._state.generations.active(), Modality.IMAGE)
    search = index.search
    waiting = list(replacements)

    def overtaken(*given: Any, **options: Any) -> Any:
        answer = search(*given, **options)
        while waiting:
            other.upsert([new_item("a", image_vector=axis(waiting.pop(0)))], space_id=SPACE)
        return answer

    monkeypatch.setattr(index, "search", overtaken)
    for expected in (score, 1.0):  # the second search begins after the change
        hits = collection.search(axis(2)[np.newaxis], modality=Modality.IMAGE, top_k=9, space_id=SPACE, filter=text)[0]
        assert [hit.score for hit in hits if hit.item.id == "a"] == [expected]
        assert len(hits) == (1 if text else 2)


def test_an_item_replaced_while_it_is_deleted_stays(
    collection: MilvusCollection, other: MilvusCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection.upsert([new_item("a"), new_item("b")], space_id=SPACE)
    delete = collection._state.items.delete

    def overtaken(found: Any) -> None:
        other.upsert([new_item("a", caption="new")], space_id=SPACE)
        delete(found)

    monkeypatch.setattr(collection._state.items, "delete", overtaken)
    collection.delete(filter='id = "*"')
    assert [(item.id, item.caption) for item in collection.list()] == [("a", "new")]
    assert found(collection, 0) == ["a"]


def test_pictures_go_with_their_items_and_damage_is_named(collection: MilvusCollection, pictures: Path) -> None:
    collection.upsert([new_item("a", image=b"same"), new_item("b", image=b"same")], space_id=SPACE)
    collection.delete(["b"])
    assert files(pictures) == [b"same"]
    (picture,) = (path for path in pictures.rglob("*") if path.is_file())
    picture.write_bytes(b"other")
    with pytest.raises(CorruptCollection, match="damaged"):
        collection.get_image("a")
    picture.unlink()
    with pytest.raises(CorruptCollection, match="the picture of item 'a' is missing"):
        collection.get_image("a")


def test_the_longest_texts_fit(collection: MilvusCollection) -> None:
    caption, uri = "é" * 32_768, "u" * 8_192
    metadata = {"text": "\N{SNOWMAN}" * 21_000, "quotes": '"\\\n', "nested": {"list": [1, 2.5, None, True]}}
    collection.upsert([new_item("\N{SNOWMAN}'\"\\", caption=caption, uri=uri, metadata=metadata)], space_id=SPACE)
    (item,) = collection.list()
    assert (item.id, item.caption, item.uri, item.metadata) == ("\N{SNOWMAN}'\"\\", caption, uri, metadata)


def test_export_gives_every_item_with_its_vectors(collection: MilvusCollection) -> None:
    collection.upsert(
        [new_item(f"{i}", image_vector=axis(i), text_vector=axis(7 - i) if i % 2 else None) for i in range(5)],
        space_id=SPACE,
    )
    export = collection.export([Modality.TEXT], filter='id != "0"', batch=3)
    pages = list(export.pages)
    assert (export.space_id, export.dimension, export.item_count) == (SPACE, DIMENSION, 4)
    assert [[item.id for item in page.items] for page in pages] == [["1", "2", "3"], ["4"]]
    assert [[sorted(vectors) for vectors in page.vectors] for page in pages] == [[["text"], [], ["text"]], [[]]]


def test_a_generation_that_is_dropped_is_gone(collection: MilvusCollection) -> None:
    generation = collection.begin_generation(space_id="space-two", dimension=4)
    with pytest.raises(InvalidArgument, match="active and cannot be dropped"):
        collection.drop_generation(collection.begin_generation(space_id=SPACE, dimension=DIMENSION))
    collection.drop_generation(generation)
    with pytest.raises(InvalidArgument, match=f"has no generation {generation}"):
        collection.missing(generation, limit=1)
    assert collection.begin_generation(space_id="space-two", dimension=6) == generation  # of another dimension now


def test_what_milvus_does_by_itself_is_said(collection: MilvusCollection) -> None:
    for call in (collection.merge, collection.check, lambda: collection.backup("there")):
        with pytest.raises(NotOffered, match="collection my-photos_1 lives in Milvus, which"):
            call()


def test_a_kind_is_kept_with_the_collection(catalog: MilvusCatalog, address: str, pictures: Path) -> None:
    collection = catalog.create("inverted", space_id=SPACE, dimension=DIMENSION, kind=Kind.IVF_FLAT)
    collection.upsert([new_item(f"{i}", image_vector=axis(i)) for i in range(8)], space_id=SPACE)
    assert found(collection, 5)[0] == "5"
    second = MilvusCatalog(address, pictures=str(pictures))
    assert second.get("inverted").kind is Kind.IVF_FLAT
    second.close()


@pytest.mark.parametrize("collection_id", ["a", "a-b_c", "0__-", "x" * 64])
def test_names_in_milvus_lead_back_to_the_collection(collection_id: str) -> None:
    layout = Layout(collection_id)
    assert collection_of(layout.active) == collection_id
    assert generation_of(layout.done(17)) == 17
    assert generation_of(layout.items) is None
    assert not Layout("a-").mine(Layout("a").items)
